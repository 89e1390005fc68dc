// Instances of the large-M kernel: BF16, gated.
#include "kernels/sm90/instances/gated.cuh"

namespace culet::sm90 {
namespace {

struct Gated {
  static constexpr BlockSchedule kAll[] = {
      // The epilogue of one tile runs while the next is multiplied.
      InTurns({.tile_m = 128, .tile_n = 128, .stages = 6, .slabs = 2}),
      InTurns({.tile_m = 128, .tile_n = 128, .stages = 6, .cluster_m = 2, .slabs = 2}),
      {.tile_m = 128, .tile_n = 256, .stages = 4, .slabs = 2},
      {.tile_m = 128, .tile_n = 256, .stages = 4, .cluster_m = 2, .slabs = 2},
      {.tile_m = 256, .tile_n = 128, .stages = 4, .slabs = 2},
      {.tile_m = 128, .tile_n = 128, .stages = 6},
  };
};
struct GatedQuant {
  static constexpr BlockSchedule kAll[] = {
      // One warpgroup has all columns of a scale.
      {.tile_m = 128, .tile_n = 256, .stages = 4},
      {.tile_m = 128, .tile_n = 256, .stages = 4, .cluster_m = 2},
      InTurns({.tile_m = 64, .tile_n = 256, .stages = 5}),
  };
};

}  // namespace

std::span<const BlockKernel> Bf16GatedBlocks() {
  return GatedInstances<Bf16Direct, Gated, GatedQuant>();
}

}  // namespace culet::sm90
