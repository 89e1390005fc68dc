// Instances of the large-M kernel: BF16, gated, for few rows. Their tiles do not have all columns
// of a scale of D.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule>
static BlockKernel Make() {
  return MakeBlock<BlockConfig<kSchedule, Bf16Direct, GatedEpilogue>>();
}

std::span<const BlockKernel> Bf16GatedNarrowBlocks() {
  static const BlockKernel kernels[] = {
      Make<BlockSchedule{
          .tile_m = 64, .tile_n = 96, .warpgroups_m = 1, .stages = 10, .turns = 2}>(),
      Make<BlockSchedule{
          .tile_m = 64, .tile_n = 112, .warpgroups_m = 1, .stages = 9, .turns = 2}>(),
      Make<BlockSchedule{
          .tile_m = 128, .tile_n = 112, .warpgroups_m = 1, .stages = 6, .turns = 2}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 64, .stages = 8}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 96, .stages = 7}>(),
      Make<BlockSchedule{.tile_m = 128, .tile_n = 160, .stages = 5}>(),
      Make<BlockSchedule{
          .tile_m = 192, .tile_n = 192, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4}>(),
  };
  return kernels;
}

}  // namespace culet::sm90
