// cuBLASLt's products beside culet's own.
#include <iterator>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/cublaslt/lt_kernel.h"

namespace culet {

void AddCublasLt(const DeviceInfo& device, KernelList& kernels) {
  auto all = lt::LtKernels(device, &lt::Library::Shared);
  kernels.insert(kernels.end(), std::make_move_iterator(all.begin()),
                 std::make_move_iterator(all.end()));
}

}  // namespace culet
