// Attention over keys and values of float16.
#include "kernels/cuda_ops/attention.cuh"

namespace culet::cuda_ops {

cudaError_t AttentionOfFloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchAttention<__half>(args, stream);
}

}  // namespace culet::cuda_ops
