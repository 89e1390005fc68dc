// Instances of the large-M kernel: block-scaled FP8, gated. One warpgroup promotes, or runs its
// epilogue, while the other multiplies.
#include "kernels/sm90/instances/gated.cuh"

namespace culet::sm90 {
namespace {

struct Gated {
  static constexpr BlockSchedule kAll[] = {
      {.tile_m = 128, .tile_n = 128, .stages = 6, .lag = 500},
      OfThree({.tile_m = 192, .tile_n = 128, .stages = 4, .lag = 350}),
      {.tile_m = 128, .tile_n = 64, .stages = 8},
      // A block of B's scales may end within a tile.
      {.tile_m = 128, .tile_n = 96, .stages = 6},
      OfThree({.tile_m = 192, .tile_n = 96, .stages = 5}),
      SideBySide({.tile_m = 64, .tile_n = 256, .stages = 5}),
  };
};
struct GatedQuant {
  static constexpr BlockSchedule kAll[] = {
      // A cluster of two has the columns of a scale: fewer tiles than with runs.
      OfThree({.tile_m = 192, .tile_n = 128, .stages = 5, .cluster_n = 2}),
      {.tile_m = 128, .tile_n = 128, .stages = 5, .slabs = 2},
      OfThree({.tile_m = 192, .tile_n = 128, .stages = 4, .slabs = 2, .lag = 350}),
      // Two warpgroups share scales: twice as many tiles as with runs, for few tiles.
      SideBySide({.tile_m = 64, .tile_n = 256, .stages = 5}),
      // One warpgroup has all columns of a scale.
      {.tile_m = 128, .tile_n = 256, .stages = 4, .lag = 1400},
      {.tile_m = 128, .tile_n = 256, .stages = 4, .split = 3},
  };
};

}  // namespace

std::span<const BlockKernel> Fp8GatedBlocks() {
  return GatedInstances<Fp8Block, Gated, GatedQuant>();
}

}  // namespace culet::sm90
