// Instances of the large-M kernel: BF16, gated, for few rows. Their tiles do not have all columns
// of a scale of D.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr BlockSchedule kAll[] = {
      InTurns({.tile_m = 64, .tile_n = 96, .stages = 10}),
      InTurns({.tile_m = 64, .tile_n = 112, .stages = 9}),
      InTurns({.tile_m = 128, .tile_n = 112, .stages = 6}),
      {.tile_m = 128, .tile_n = 64, .stages = 8},
      {.tile_m = 128, .tile_n = 96, .stages = 7},
      {.tile_m = 128, .tile_n = 160, .stages = 5},
      SideBySide({.tile_m = 192, .tile_n = 192, .stages = 4}),
  };
};

}  // namespace

std::span<const BlockKernel> Bf16GatedNarrowBlocks() {
  return BlockInstances<Bf16Direct, GatedEpilogue, List>();
}

}  // namespace culet::sm90
