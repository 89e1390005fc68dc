// Instances of the large-M kernel: block-scaled FP8, tiles of 128 x 64 to 256.
#include "kernels/sm90/instances/block.cuh"
#include "kernels/sm90/instances/gemm_universal_sm90.cuh"
#include "kernels/sm90/product/lists.h"

namespace culet::sm90 {
namespace {

using Plain = PlainEpilogue<OutputType::kBf16>;

struct List {
  static constexpr BlockSchedule kAll[] = {
      {.tile_m = 128, .tile_n = 128, .stages = 5, .cluster_n = 2, .slabs = 2},
      {.tile_m = 128, .tile_n = 128, .stages = 5, .slabs = 2},
      {.tile_m = 128, .tile_n = 128, .stages = 6},
      {.tile_m = 128, .tile_n = 192, .stages = 4, .cluster_m = 2, .slabs = 3},
      {.tile_m = 128, .tile_n = 192, .stages = 4, .cluster_n = 2, .slabs = 3},
      SideBySide({.tile_m = 128, .tile_n = 256, .stages = 4}),
      SideBySide({.tile_m = 128, .tile_n = 256, .stages = 3, .slabs = 4}),
      SideBySide({.tile_m = 128, .tile_n = 256, .stages = 3, .cluster_n = 2, .slabs = 4}),
      {.tile_m = 128, .tile_n = 160, .stages = 5, .cluster_m = 2, .slabs = 2},
      {.tile_m = 128, .tile_n = 112, .stages = 6, .slabs = 2},
      {.tile_m = 128, .tile_n = 96, .stages = 6, .slabs = 2},
      {.tile_m = 128, .tile_n = 96, .stages = 7},
      {.tile_m = 128, .tile_n = 80, .stages = 7, .slabs = 2},
      {.tile_m = 128, .tile_n = 64, .stages = 8},
      {.tile_m = 128, .tile_n = 192, .stages = 4, .slabs = 3},
  };
};

}  // namespace

std::span<const BlockKernel> Fp8Block128xN() {
  static const BlockKernel universal[] = {MakeBlock<GemmUniversalSm90>()};
  static const auto kernels =
      Joined<BlockKernel>({BlockInstances<Fp8Block, Plain, List>(), universal});
  return kernels;
}

}  // namespace culet::sm90
