// MakeCudaDispatch and exchanges between GPUs of a build without CUDA.
#include "culet/dispatch.h"
#include "culet/ranks.h"

namespace culet {

Result<std::unique_ptr<KernelDispatch>> MakeCudaDispatch(Gemm&, const CudaDispatchOptions&) {
  return Status(StatusCode::kUnsupported,
                "this build has no CUDA parts, so no device cuda; configure with -DCULET_CUDA=ON "
                "where nvcc is");
}

Result<std::unique_ptr<RankExchange>> MakeNcclExchange(Communicator&, DeviceMemory&) {
  return Status(StatusCode::kUnsupported,
                "this build of culet has no CUDA, which NCCL needs; build with CULET_CUDA=ON");
}

Result<std::unique_ptr<RankExchange>> MakePeerExchange(Communicator&, DeviceMemory&,
                                                       std::shared_ptr<RankExchange>,
                                                       const ExchangeChoice&) {
  return Status(StatusCode::kUnsupported,
                "this build of culet has no CUDA; build with CULET_CUDA=ON");
}

}  // namespace culet
