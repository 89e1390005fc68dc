// As attention_decode_bf16.cu, starting from the product of q, k and v.
#include "kernels/cuda_ops/attention_decode.cuh"

namespace culet::cuda_ops {

cudaError_t HeadsDecodeOfBfloat16(const FusedHeadsArgs& heads, const AttentionArgs& args,
                                  LaunchStream stream) {
  return LaunchDecode<__nv_bfloat16, true>({args, heads}, stream);
}

cudaError_t AllowHeadsDecodeOfBfloat16(int head_dim) {
  return AllowDecode<__nv_bfloat16, true>(head_dim);
}

}  // namespace culet::cuda_ops
