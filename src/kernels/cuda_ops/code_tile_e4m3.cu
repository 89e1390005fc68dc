// Products of E4M3 weights by tiles of tokens.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_tile.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kSubTiles, int kOctets, int kStages>
using Config = TileConfig<T, E4m3Codes, CodeScales::kRows, kSubTiles, kOctets, kStages>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> E4m3Tiles() {
  static const CodeProductKernel kernels[] = {
      MakeCodeTile<Config<Bf16, 2, 8, 4>>("e4m3_row", 196),
      MakeCodeTile<Config<Bf16, 1, 8, 4>>("e4m3_row", 133),
      MakeCodeTile<Config<__half, 2, 8, 4>>("e4m3_row", 196),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
