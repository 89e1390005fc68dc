// As attention_decode_e4m3.cu, starting from the product of q, k and v.
#include "kernels/cuda_ops/attention_decode.cuh"

namespace culet::cuda_ops {

cudaError_t HeadsDecodeOfE4m3(const FusedHeadsArgs& heads, const AttentionArgs& args,
                              LaunchStream stream) {
  return LaunchDecode<__nv_fp8_e4m3, true>({args, heads}, stream);
}

cudaError_t AllowHeadsDecodeOfE4m3(int head_dim) {
  return AllowDecode<__nv_fp8_e4m3, true>(head_dim);
}

}  // namespace culet::cuda_ops
