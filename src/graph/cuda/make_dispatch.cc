// MakeCudaDispatch of a build with CUDA.
#include <fmt/format.h>

#include "cuda/device_memory.h"
#include "graph/cuda/dispatch.h"

namespace culet {

Result<std::unique_ptr<KernelDispatch>> MakeCudaDispatch(Gemm& gemm,
                                                         const CudaDispatchOptions& options) {
  if (gemm.device().ordinal < 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("gemm is of device {}; make one of \"cuda\" or \"cuda:N\"",
                              gemm.device().device_class));
  }
  return cuda_ops::MakeDispatch(gemm, CudaMemory(gemm.device().ordinal), options);
}

}  // namespace culet
