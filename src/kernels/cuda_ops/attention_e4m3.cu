// Attention over keys and values of E4M3.
#include "kernels/cuda_ops/attention.cuh"

namespace culet::cuda_ops {

cudaError_t AttentionOfE4m3(const AttentionArgs& args, LaunchStream stream) {
  return LaunchAttention<__nv_fp8_e4m3>(args, stream);
}

}  // namespace culet::cuda_ops
