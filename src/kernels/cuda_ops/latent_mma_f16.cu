// Latent attention over a cache of float16 on tensor cores.
#include "kernels/cuda_ops/latent_mma.cuh"

namespace culet::cuda_ops {

cudaError_t LatentMmaOfFloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchLatentMma<__half>(args, stream);
}

cudaError_t AllowLatentMmaOfFloat16(const AttentionPlan& plan) {
  return AllowLatentMma<__half>(plan);
}

}  // namespace culet::cuda_ops
