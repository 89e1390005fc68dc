// Attention over keys and values of bfloat16.
#include "kernels/cuda_ops/attention.cuh"

namespace culet::cuda_ops {

cudaError_t AttentionOfBfloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchAttention<__nv_bfloat16>(args, stream);
}

}  // namespace culet::cuda_ops
