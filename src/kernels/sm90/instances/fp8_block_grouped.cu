// Instances of the large-M kernel: rows by groups (BlockGroups).
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

std::span<const BlockKernel> GroupedBlocks() {
  static const BlockKernel kernels[] = {
      MakeFp8Block<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 5, .grouped = true}>(),
      MakeFp8Block<BlockSchedule{
          .tile_m = 128, .tile_n = 192, .stages = 4, .slabs = 2, .grouped = true}>(),
  };
  return kernels;
}

}  // namespace culet::sm90
