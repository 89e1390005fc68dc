#include "kernels/catalog.h"

#include <utility>

#include "culet/registry.h"

namespace culet {

Registry Registry::Builtin(const DeviceInfo& device) {
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

  Registry registry;
  for (auto& kernel : kernels) {
    // The catalog's ids are unique: tests/registry_test counts them.
    static_cast<void>(registry.Add(std::move(kernel)).ok());
  }
  return registry;
}

}  // namespace culet
