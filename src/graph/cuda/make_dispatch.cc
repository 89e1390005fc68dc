// What a build with CUDA makes of the dispatch, and of grouped products.
#include <fmt/format.h>

#include "base/grouped_accelerator.h"
#include "cuda/capture.h"
#include "cuda/device_memory.h"
#include "cuda/relaxed_capture.h"
#include "graph/cuda/dispatch.h"
#include "graph/cuda/grouped_product.h"

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

Status GroupedOnAccelerator(const DeviceInfo& device, const GroupedArgs& args,
                            cudaStream_t stream) {
  const RelaxedCapture relaxed;  // the first launch of a kernel loads it
  return cuda_ops::LaunchGrouped(device, args, stream);
}

}  // namespace culet
