// Products of uint4 weights by tiles of tokens.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_tile.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kSubTiles, int kOctets, int kStages>
using Config = TileConfig<T, Uint4Codes, CodeScales::kBlocks, kSubTiles, kOctets, kStages>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> Uint4Tiles() {
  static const CodeProductKernel kernels[] = {
      MakeCodeTile<Config<Bf16, 2, 4, 4>>("u4_g128", 208),
      MakeCodeTile<Config<Bf16, 1, 8, 4>>("u4_g128", 206),
      MakeCodeTile<Config<__half, 1, 8, 4>>("u4_g128", 206),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
