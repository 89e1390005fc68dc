// The same as attention_decode_f16.cu from the product of q, k and v on.
#include "kernels/cuda_ops/attention_decode.cuh"

namespace culet::cuda_ops {

cudaError_t HeadsDecodeOfFloat16(const FusedHeadsArgs& heads, const AttentionArgs& args,
                                 LaunchStream stream) {
  return LaunchDecode<__half, true>({args, heads}, stream);
}

cudaError_t AllowHeadsDecodeOfFloat16(int head_dim) { return AllowDecode<__half, true>(head_dim); }

}  // namespace culet::cuda_ops
