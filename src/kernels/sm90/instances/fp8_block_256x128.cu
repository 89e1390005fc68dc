// Instances of the large-M kernel: tiles of 256 x 128.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

std::span<const BlockKernel> Fp8Block256x128() {
  static const BlockKernel kernels[] = {
      MakeFp8Block<BlockSchedule{.tile_m = 256, .tile_n = 128, .stages = 4}>(),
  };
  return kernels;
}

}  // namespace culet::sm90
