// Latent attention over a cache of float16 on Hopper's warpgroup products.
#include "kernels/cuda_ops/sm90a/latent_wgmma.cuh"

namespace culet::cuda_ops {

cudaError_t LatentWgmmaOfFloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchLatentWgmma<__half>(args, stream);
}

cudaError_t AllowLatentWgmmaOfFloat16() { return AllowLatentWgmma<__half>(); }

}  // namespace culet::cuda_ops
