// MakeCudaDispatch, in builds with CUDA and without.
#include <fmt/format.h>

#include "culet/dispatch.h"
#ifdef CULET_WITH_CUDA
#include "cuda/device_memory.h"
#include "graph/cuda/dispatch.h"
#endif

namespace culet {

Result<std::unique_ptr<KernelDispatch>> MakeCudaDispatch(
    Gemm& gemm, [[maybe_unused]] const CudaDispatchOptions& options) {
  if (gemm.device().ordinal < 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("gemm is of device {}; make one of \"cuda\" or \"cuda:N\"",
                              gemm.device().device_class));
  }
#ifdef CULET_WITH_CUDA
  return cuda_ops::MakeDispatch(gemm, CudaMemory(gemm.device().ordinal), options);
#else
  return Status(StatusCode::kUnsupported,
                "this build has no CUDA parts; configure with -DCULET_CUDA=ON where nvcc is");
#endif
}

}  // namespace culet
