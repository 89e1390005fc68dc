// Instances of the large-M kernel: tiles of 128 x 64 to 256.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

// The first kernel of the history in docs/hopper-lessons.md: two warpgroups side by side along N,
// and a cluster of two CTAs that share B.
inline constexpr BlockSchedule kGemmUniversalSm90 = {.tile_m = 128,
                                                     .tile_n = 224,
                                                     .warpgroups_m = 1,
                                                     .warpgroups_n = 2,
                                                     .stages = 3,
                                                     .cluster_m = 2,
                                                     .slabs = 2};

std::span<const BlockKernel> Fp8Block128xN() {
  static const BlockKernel kernels[] = {
      MakeFp8Block<BlockSchedule{
          .tile_m = 128, .tile_n = 128, .stages = 5, .cluster_n = 2, .slabs = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 5, .slabs = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6}>(),
      MakeFp8Block<BlockSchedule{
          .tile_m = 128, .tile_n = 192, .stages = 4, .cluster_m = 2, .slabs = 3}>(),
      MakeFp8Block<BlockSchedule{
          .tile_m = 128, .tile_n = 192, .stages = 4, .cluster_n = 2, .slabs = 3}>(),
      MakeFp8Block<BlockSchedule{
          .tile_m = 128, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128,
                                 .tile_n = 256,
                                 .warpgroups_m = 1,
                                 .warpgroups_n = 2,
                                 .stages = 3,
                                 .slabs = 4}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128,
                                 .tile_n = 256,
                                 .warpgroups_m = 1,
                                 .warpgroups_n = 2,
                                 .stages = 3,
                                 .cluster_n = 2,
                                 .slabs = 4}>(),
      MakeFp8Block<BlockSchedule{
          .tile_m = 128, .tile_n = 160, .stages = 5, .cluster_m = 2, .slabs = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 112, .stages = 6, .slabs = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 96, .stages = 6, .slabs = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 96, .stages = 7}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 80, .stages = 7, .slabs = 2}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 64, .stages = 8}>(),
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 192, .stages = 4, .slabs = 3}>(),
      MakeFp8Block<kGemmUniversalSm90>(),
  };
  return kernels;
}

}  // namespace culet::sm90
