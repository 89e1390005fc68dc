// Which device a pointer belongs to, by the driver that the process already uses.
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>

#include <atomic>

#include "base/accelerator.h"

namespace culet {
namespace {

using PointerGetAttribute = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);

// How many libraries the process has ever loaded.
unsigned long long LibrariesLoaded() noexcept {
  unsigned long long loaded = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* to) {
        *static_cast<unsigned long long*>(to) = library->dlpi_adds;
        return 1;  // the first one knows
      },
      &loaded);
  return loaded;
}

// The driver's query; null if the process has no driver. A driver once found stays; otherwise it is
// searched again, along all library paths, when another library has been loaded.
PointerGetAttribute DriverQuery() noexcept {
  static std::atomic<PointerGetAttribute> query{nullptr};
  static std::atomic<unsigned long long> absent_from{0};  // LibrariesLoaded() then
  if (const auto known = query.load(std::memory_order_acquire)) return known;
  const unsigned long long loaded = LibrariesLoaded();
  if (absent_from.load(std::memory_order_relaxed) == loaded) return nullptr;
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) {
    absent_from.store(loaded, std::memory_order_relaxed);
    return nullptr;
  }
  const auto found = reinterpret_cast<PointerGetAttribute>(dlsym(driver, "cuPointerGetAttribute"));
  query.store(found, std::memory_order_release);
  return found;
}

}  // namespace

bool IsAcceleratorMemory(const void* pointer) noexcept {
  // The run time's query would start an unused driver: a GPU context for CPU products, and no CUDA
  // in the children of a later fork. Whoever has GPU memory has already started it.
  const PointerGetAttribute ask = DriverQuery();
  if (ask == nullptr) return false;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  unsigned type = 0, managed = 0;
  if (ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
      type == CU_MEMORYTYPE_DEVICE) {
    return true;
  }
  return ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == CUDA_SUCCESS && managed != 0;
}

}  // namespace culet
