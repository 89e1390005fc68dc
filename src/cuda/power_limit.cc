#include "cuda/power_limit.h"

#include <dlfcn.h>

#include <memory>

namespace culet {
namespace {

// NVML's functions by their documented signatures: the toolkit may come without its header. All
// return 0 on success.
using Init = int (*)();
using HandleByPciBusId = int (*)(const char*, void**);
using EnforcedPowerLimit = int (*)(void*, unsigned*);  // milliwatts

struct CloseLibrary {
  void operator()(void* library) const noexcept { dlclose(library); }
};

template <class Function>
Function Find(void* library, const char* name) noexcept {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

double PowerLimitWatts(const char* pci_bus_id) noexcept {
  const std::unique_ptr<void, CloseLibrary> library(dlopen("libnvidia-ml.so.1", RTLD_LAZY));
  if (library == nullptr) return 0;
  const auto init = Find<Init>(library.get(), "nvmlInit_v2");
  const auto shutdown = Find<Init>(library.get(), "nvmlShutdown");
  const auto handle = Find<HandleByPciBusId>(library.get(), "nvmlDeviceGetHandleByPciBusId_v2");
  const auto limit = Find<EnforcedPowerLimit>(library.get(), "nvmlDeviceGetEnforcedPowerLimit");
  if (init == nullptr || shutdown == nullptr || handle == nullptr || limit == nullptr) return 0;
  if (init() != 0) return 0;
  void* gpu = nullptr;
  unsigned milliwatts = 0;
  const bool known = handle(pci_bus_id, &gpu) == 0 && limit(gpu, &milliwatts) == 0;
  shutdown();
  return known ? milliwatts / 1e3 : 0;
}

}  // namespace culet
