// Instances of the large-M kernel: E4M3 with scales of rows or tensors, promoted every 128 of K.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule>
static BlockKernel Make() {
  return MakeBlock<BlockConfig<kSchedule, Fp8Precise, GeneralEpilogue>>();
}

std::span<const BlockKernel> Fp8PreciseBlocks() {
  static const BlockKernel kernels[] = {
      // One stage less, and slabs for all that a warp stores of a tile, are faster where K is
      // short.
      Make<BlockSchedule{.tile_m = 256, .tile_n = 128, .stages = 4, .cluster_n = 2, .slabs = 2}>(),
      Make<BlockSchedule{.tile_m = 256, .tile_n = 128, .stages = 3, .cluster_n = 2, .slabs = 4}>(),
      Make<BlockSchedule{.tile_m = 128,
                         .tile_n = 256,
                         .warpgroups_m = 1,
                         .warpgroups_n = 2,
                         .stages = 4,
                         .slabs = 2}>(),
      Make<BlockSchedule{.tile_m = 128,
                         .tile_n = 256,
                         .warpgroups_m = 1,
                         .warpgroups_n = 2,
                         .stages = 3,
                         .slabs = 4}>(),
      Make<BlockSchedule{.tile_m = 128,
                         .tile_n = 256,
                         .warpgroups_m = 1,
                         .warpgroups_n = 2,
                         .stages = 4,
                         .cluster_n = 2,
                         .slabs = 2}>(),
      Make<BlockSchedule{.tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 5}>(),
      Make<BlockSchedule{
          .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4, .slabs = 2}>(),
      Make<BlockSchedule{
          .tile_m = 192, .tile_n = 192, .warpgroups_m = 3, .stages = 3, .slabs = 3}>(),
      Make<BlockSchedule{.tile_m = 192,
                         .tile_n = 128,
                         .warpgroups_m = 3,
                         .stages = 4,
                         .cluster_n = 2,
                         .slabs = 2}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 192, .stages = 5}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 192, .stages = 4, .cluster_m = 2, .slabs = 3}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 160, .stages = 5, .slabs = 2}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6, .slabs = 2}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6, .cluster_n = 2, .slabs = 2}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 96, .stages = 7}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 64, .stages = 8}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 112, .stages = 6}>(),
      Make<BlockSchedule{.tile_m = 128,
                         .tile_n = 224,
                         .warpgroups_m = 1,
                         .warpgroups_n = 2,
                         .stages = 4,
                         .slabs = 2}>(),
      Make<BlockSchedule{.tile_m = 128,
                         .tile_n = 224,
                         .warpgroups_m = 1,
                         .warpgroups_n = 2,
                         .stages = 4,
                         .cluster_n = 2,
                         .slabs = 2}>(),
      Make<BlockSchedule{
          .tile_m = 64, .tile_n = 128, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 8}>(),
      Make<BlockSchedule{
          .tile_m = 64, .tile_n = 224, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 5}>(),
      Make<BlockSchedule{
          .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 5}>(),
  };
  return kernels;
}

}  // namespace culet::sm90
