#include "kernels/catalog.h"

#include <utility>

#include "culet/registry.h"

namespace culet {

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
