// Attention of prompts over keys and values of E4M3 on tensor cores.
#include "kernels/cuda_ops/attention_tiles.cuh"

namespace culet::cuda_ops {

cudaError_t TilesOfE4m3(const AttentionArgs& args, LaunchStream stream) {
  return LaunchTiles<__nv_fp8_e4m3>(args, stream);
}

cudaError_t AllowTilesOfE4m3(int head_dim) { return AllowTiles<__nv_fp8_e4m3>(head_dim); }

}  // namespace culet::cuda_ops
