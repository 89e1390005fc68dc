#include "kernels/catalog.h"

#include <utility>

#include "culet/registry.h"

namespace culet {

namespace {

// Each native CPU kernel also as its swap-AB twin. The families write D row by row; the twins serve
// column-major D at the same speed.
void AddTransposedTwins(KernelList& kernels) {
  const std::size_t count = kernels.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (kernels[i]->desc().backend != Backend::kNative) continue;
    kernels.push_back(transpose(*kernels[i]));
  }
}

}  // namespace

KernelList BuiltinKernels(const DeviceInfo& device) {
  KernelList kernels;
  const bool host = device.arch == 0;
#define CULET_CPU_FAMILY(source, Function) \
  if (host) Function(device, kernels);
#ifdef CULET_WITH_CUDA
#define CULET_CUDA_FAMILY(source, Function) \
  if (!host) Function(device, kernels);
#else
#define CULET_CUDA_FAMILY(source, Function)
#endif
#include "kernels/catalog.def"
#undef CULET_CPU_FAMILY
#undef CULET_CUDA_FAMILY
  if (host) AddTransposedTwins(kernels);
  return kernels;
}

Registry Registry::Builtin(const DeviceInfo& device) {
  Registry registry;
  for (auto& kernel : BuiltinKernels(device)) {
    // Add refuses nothing here: tests/registry_test holds the catalog to unique ids.
    static_cast<void>(registry.Add(std::move(kernel)).ok());
  }
  return registry;
}

}  // namespace culet
