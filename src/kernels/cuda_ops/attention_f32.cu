// Attention over keys and values of float32.
#include "kernels/cuda_ops/attention.cuh"

namespace culet::cuda_ops {

cudaError_t AttentionOfFloat32(const AttentionArgs& args, LaunchStream stream) {
  return LaunchAttention<float>(args, stream);
}

}  // namespace culet::cuda_ops
