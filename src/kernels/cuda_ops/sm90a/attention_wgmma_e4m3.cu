// Attention of prompts over keys and values of E4M3 on Hopper's warpgroup products, of float16.
#include "kernels/cuda_ops/sm90a/attention_wgmma.cuh"

namespace culet::cuda_ops {

cudaError_t WgmmaOfE4m3(const AttentionArgs& args, LaunchStream stream) {
  return LaunchWgmma<__nv_fp8_e4m3>(args, stream);
}

cudaError_t AllowWgmmaOfE4m3(int head_dim) { return AllowWgmma<__nv_fp8_e4m3>(head_dim); }

}  // namespace culet::cuda_ops
