// Latent attention over a cache of bfloat16 on Hopper's warpgroup products.
#include "kernels/cuda_ops/sm90a/latent_wgmma.cuh"

namespace culet::cuda_ops {

cudaError_t LatentWgmmaOfBfloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchLatentWgmma<__nv_bfloat16>(args, stream);
}

cudaError_t AllowLatentWgmmaOfBfloat16() { return AllowLatentWgmma<__nv_bfloat16>(); }

}  // namespace culet::cuda_ops
