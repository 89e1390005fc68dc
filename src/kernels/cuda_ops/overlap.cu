// Whether kernels of this build may begin before the one before them has ended.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

__global__ void Nothing() { WaitForPrevious(); }

}  // namespace

// Kernels that the driver compiles from PTX of an older architecture have no instruction to wait
// with.
bool CanOverlap() {
  constexpr int kOverlapping = 90;
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, &Nothing);
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());  // the launches will say it
  return error == cudaSuccess && attributes.ptxVersion >= kOverlapping;
}

}  // namespace culet::cuda_ops
