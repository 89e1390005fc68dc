// Whose memory a pointer shows, asked of the driver that the process uses already.
#include <cuda.h>
#include <dlfcn.h>

#include <memory>

#include "base/accelerator.h"

namespace culet {
namespace {

struct CloseLibrary {
  void operator()(void* library) const noexcept { dlclose(library); }
};

using PointerGetAttribute = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);

}  // namespace

bool IsAcceleratorMemory(const void* pointer) noexcept {
  // The run time's query would start a driver that nobody uses: a context on a GPU for products of
  // the host, and no CUDA in the children of a later fork. Who has memory of a GPU has started it.
  const std::unique_ptr<void, CloseLibrary> driver(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
  if (driver == nullptr) return false;
  const auto ask =
      reinterpret_cast<PointerGetAttribute>(dlsym(driver.get(), "cuPointerGetAttribute"));
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
