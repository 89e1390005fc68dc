// Attention of prompts over keys and values of float16 on tensor cores.
#include "kernels/cuda_ops/attention_tiles.cuh"

namespace culet::cuda_ops {

cudaError_t TilesOfFloat16(const AttentionArgs& args, LaunchStream stream) {
  return LaunchTiles<__half>(args, stream);
}

cudaError_t AllowTilesOfFloat16(int head_dim) { return AllowTiles<__half>(head_dim); }

}  // namespace culet::cuda_ops
