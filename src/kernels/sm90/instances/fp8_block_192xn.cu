// Instances of the large-M kernel: tiles of 192 x 96, 112 and 128, three warpgroups.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

std::span<const BlockKernel> Fp8Block192xN() {
  static const BlockKernel kernels[] = {
      MakeFp8Block<BlockSchedule{
          .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4, .slabs = 2}>(),
      // 2112 columns are eleven tiles; with 2,048 rows they fill one wave.
      MakeFp8Block<BlockSchedule{
          .tile_m = 192, .tile_n = 192, .warpgroups_m = 3, .stages = 3, .slabs = 3}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 192,
                                 .tile_n = 128,
                                 .warpgroups_m = 3,
                                 .stages = 4,
                                 .cluster_n = 2,
                                 .slabs = 2}>(),
      MakeFp8Block<BlockSchedule{
          .tile_m = 192, .tile_n = 112, .warpgroups_m = 3, .stages = 4, .slabs = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 192, .tile_n = 96, .warpgroups_m = 3, .stages = 5}>(),
  };
  return kernels;
}

}  // namespace culet::sm90
