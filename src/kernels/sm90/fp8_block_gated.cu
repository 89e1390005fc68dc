// Instances of the large-M kernel: block-scaled FP8, gated.
#include "kernels/sm90/block_instances.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule, class Epilogue>
static BlockKernel Make() {
  return MakeBlock<BlockConfig<kSchedule, Fp8Block, Epilogue>>();
}

std::span<const BlockKernel> Fp8GatedBlocks() {
  constexpr BlockSchedule kWide = {
      .tile_m = 128, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4};
  constexpr BlockSchedule kHigh = {.tile_m = 256, .tile_n = 128, .stages = 4};
  constexpr BlockSchedule kHighSharesA = {
      .tile_m = 256, .tile_n = 128, .stages = 4, .cluster_n = 2};
  constexpr BlockSchedule kThree = {.tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4};
  static const BlockKernel kernels[] = {
      Make<kHigh, GatedEpilogue>(),      Make<kHighSharesA, GatedEpilogue>(),
      Make<kWide, GatedEpilogue>(),      Make<kThree, GatedEpilogue>(),
      Make<kWide, GatedQuantEpilogue>(),
  };
  return kernels;
}

}  // namespace culet::sm90
