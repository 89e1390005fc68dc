// Attention of prompts over keys and values of bfloat16 on tensor cores.
#include "kernels/cuda_ops/attention_tiles.cuh"

namespace culet::cuda_ops {

cudaError_t TilesOfBfloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchTiles<__nv_bfloat16>(args, stream);
}

cudaError_t AllowTilesOfBfloat16(int head_dim) { return AllowTiles<__nv_bfloat16>(head_dim); }

}  // namespace culet::cuda_ops
