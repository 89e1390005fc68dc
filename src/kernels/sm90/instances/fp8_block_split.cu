// Instances of the large-M kernel: tiles that a cluster splits along K.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

std::span<const BlockKernel> Fp8BlockSplit() {
  static const BlockKernel kernels[] = {
      MakeFp8Block<BlockSchedule{.tile_m = 256, .tile_n = 128, .stages = 4, .split = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 96, .stages = 7, .split = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 64, .stages = 8, .split = 2}>(),
  };
  return kernels;
}

}  // namespace culet::sm90
