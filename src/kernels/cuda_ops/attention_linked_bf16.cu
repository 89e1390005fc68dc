// The same as attention_heads_bf16.cu, where the output is handed on, too.
#include "kernels/cuda_ops/attention_decode.cuh"

namespace culet::cuda_ops {

cudaError_t LinkedDecodeOfBfloat16(const FusedHeadsArgs& heads, const AttentionArgs& args,
                                   LaunchStream stream) {
  return LaunchDecode<__nv_bfloat16, true, true>({args, heads}, stream);
}

cudaError_t AllowLinkedDecodeOfBfloat16(int head_dim) {
  return AllowDecode<__nv_bfloat16, true, true>(head_dim);
}

}  // namespace culet::cuda_ops
