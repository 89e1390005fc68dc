// Products of E2M1 weights by tiles of tokens.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_tile.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kSubTiles, int kOctets, int kStages>
using Config = TileConfig<T, E2m1Codes, CodeScales::kPowers, kSubTiles, kOctets, kStages>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> E2m1Tiles() {
  static const CodeProductKernel kernels[] = {
      MakeCodeTile<Config<Bf16, 2, 4, 4>>("e2m1", 161),
      MakeCodeTile<Config<Bf16, 2, 8, 4>>("e2m1", 231),
      MakeCodeTile<Config<Bf16, 1, 8, 4>>("e2m1", 170),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
