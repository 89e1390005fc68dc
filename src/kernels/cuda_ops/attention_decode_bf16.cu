// Attention of single rows over keys and values of bfloat16 on tensor cores.
#include "kernels/cuda_ops/attention_decode.cuh"

namespace culet::cuda_ops {

cudaError_t DecodeOfBfloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchDecode<__nv_bfloat16, false>({args}, stream);
}

cudaError_t AllowDecodeOfBfloat16(int head_dim) {
  return AllowDecode<__nv_bfloat16, false>(head_dim);
}

}  // namespace culet::cuda_ops
