// Attention of single rows over keys and values of float16 on tensor cores.
#include "kernels/cuda_ops/attention_decode.cuh"

namespace culet::cuda_ops {

cudaError_t DecodeOfFloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchDecode<__half, false>({args}, stream);
}

cudaError_t AllowDecodeOfFloat16(int head_dim) { return AllowDecode<__half, false>(head_dim); }

}  // namespace culet::cuda_ops
