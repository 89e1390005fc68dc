// What a build with CUDA makes of the dispatch.
#include <fmt/format.h>

#include "cuda/capture.h"
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
  const int ordinal = gemm.device().ordinal;
  return cuda_ops::MakeDispatch(
      gemm, CudaMemory(ordinal), options,
      [ordinal](const LaunchFunction& launches) { return CaptureLaunches(ordinal, launches); });
}

}  // namespace culet
