// Latent attention over a cache of bfloat16 on tensor cores.
#include "kernels/cuda_ops/latent_mma.cuh"

namespace culet::cuda_ops {

cudaError_t LatentMmaOfBfloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchLatentMma<__nv_bfloat16>(args, stream);
}

cudaError_t AllowLatentMmaOfBfloat16(const AttentionPlan& plan) {
  return AllowLatentMma<__nv_bfloat16>(plan);
}

}  // namespace culet::cuda_ops
