// Attention of prompts over keys and values of float16 on Hopper's warpgroup products.
#include "kernels/cuda_ops/sm90a/attention_wgmma.cuh"

namespace culet::cuda_ops {

cudaError_t WgmmaOfFloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchWgmma<__half>(args, stream);
}

cudaError_t AllowWgmmaOfFloat16(int head_dim) { return AllowWgmma<__half>(head_dim); }

}  // namespace culet::cuda_ops
