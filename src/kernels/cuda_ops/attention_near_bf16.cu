// Attention of single rows that see few keys, over keys and values of bfloat16.
#include "kernels/cuda_ops/attention_near.cuh"

namespace culet::cuda_ops {

cudaError_t NearOfBfloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchNear<false>({args}, stream);
}

cudaError_t HeadsNearOfBfloat16(const FusedHeadsArgs& heads, const AttentionArgs& args,
                                LaunchStream stream) {
  return LaunchNear<true>({args, heads}, stream);
}

cudaError_t AllowNearOfBfloat16(int head_dim) { return AllowNear<false>(head_dim); }

cudaError_t AllowHeadsNearOfBfloat16(int head_dim) { return AllowNear<true>(head_dim); }

}  // namespace culet::cuda_ops
