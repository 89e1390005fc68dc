// Attention of prompts over keys and values of bfloat16 on Hopper's warpgroup products.
#include "kernels/cuda_ops/sm90a/attention_wgmma.cuh"

namespace culet::cuda_ops {

cudaError_t WgmmaOfBfloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchWgmma<__nv_bfloat16>(args, stream);
}

cudaError_t AllowWgmmaOfBfloat16(int head_dim) { return AllowWgmma<__nv_bfloat16>(head_dim); }

bool CanMultiplyWarpgroups() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, &AttentionWgmma<__nv_bfloat16, 64>) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // of another GPU; its own launches will say the rest
    return false;
  }
  return sm90::CanEncodeTensorMaps();
}

}  // namespace culet::cuda_ops
