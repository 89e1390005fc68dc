// Instances of the large-M kernel: tiles of 256 x 96 and 112.
#include "kernels/sm90/block_instances.cuh"

namespace culet::sm90 {

std::span<const BlockKernel> Fp8Block256xN() {
  static const BlockKernel kernels[] = {
      MakeFp8Block<BlockSchedule{.tile_m = 256, .tile_n = 96, .stages = 4, .slabs = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 256, .tile_n = 112, .stages = 3, .slabs = 4}>(),
  };
  return kernels;
}

}  // namespace culet::sm90
