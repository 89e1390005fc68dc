// MakeCudaDispatch of a build without CUDA.
#include "culet/dispatch.h"

namespace culet {

Result<std::unique_ptr<KernelDispatch>> MakeCudaDispatch(Gemm&, const CudaDispatchOptions&) {
  return Status(StatusCode::kUnsupported,
                "this build has no CUDA parts, so no device cuda; configure with -DCULET_CUDA=ON "
                "where nvcc is");
}

}  // namespace culet
