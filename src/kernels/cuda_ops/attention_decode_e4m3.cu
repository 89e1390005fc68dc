// Attention of single rows over keys and values of E4M3 on tensor cores.
#include "kernels/cuda_ops/attention_decode.cuh"

namespace culet::cuda_ops {

cudaError_t DecodeOfE4m3(const AttentionArgs& args, LaunchStream stream) {
  return LaunchDecode<__nv_fp8_e4m3, false>({args}, stream);
}

cudaError_t AllowDecodeOfE4m3(int head_dim) { return AllowDecode<__nv_fp8_e4m3, false>(head_dim); }

}  // namespace culet::cuda_ops
