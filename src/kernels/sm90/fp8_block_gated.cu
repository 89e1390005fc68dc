// Instances of the large-M kernel: block-scaled FP8, gated.
#include "kernels/sm90/block_instances.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule, class Epilogue>
static BlockKernel Make() {
  return MakeBlock<BlockConfig<kSchedule, Fp8Block, Epilogue>>();
}

std::span<const BlockKernel> Fp8GatedBlocks() {
  // A warpgroup's promotion, and its epilogue, under the other's products.
  constexpr BlockSchedule kRun = {.tile_m = 128, .tile_n = 128, .stages = 5, .slabs = 2};
  constexpr BlockSchedule kDeep = {.tile_m = 128, .tile_n = 128, .stages = 6, .lag = 500};
  constexpr BlockSchedule kThree = {
      .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4, .lag = 350};
  constexpr BlockSchedule kThreeRun = {
      .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4, .slabs = 2, .lag = 500};
  // Scales of two warpgroups: twice the tiles of a run, where there are few.
  constexpr BlockSchedule kLow = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 5};
  // And of four CTAs.
  constexpr BlockSchedule kShares = {.tile_m = 128, .tile_n = 64, .stages = 8, .cluster_n = 4};
  // Half as high: 128 CTAs of a launch all find places, in pairs, but not in fours.
  constexpr BlockSchedule kSharesLow = {.tile_m = 64,
                                        .tile_n = 128,
                                        .warpgroups_m = 1,
                                        .warpgroups_n = 2,
                                        .stages = 8,
                                        .cluster_n = 2};
  constexpr BlockSchedule kNarrow = {.tile_m = 128, .tile_n = 64, .stages = 8};
  // K over the CTAs of a cluster, where there are few tiles.
  constexpr BlockSchedule kSplit = {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2};
  constexpr BlockSchedule kSplitFour = {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 4};
  constexpr BlockSchedule kSplitNarrow = {.tile_m = 128, .tile_n = 64, .stages = 8, .split = 2};
  constexpr BlockSchedule kSplitLow = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .split = 2};
  constexpr BlockSchedule kSplitLowFour = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .split = 4};
  // All columns of a scale in one warpgroup; K over six CTAs of a cluster where there are fewest
  // tiles: of clusters of that size there are 21.
  constexpr BlockSchedule kWide = {.tile_m = 128, .tile_n = 256, .stages = 4};
  constexpr BlockSchedule kWideThree = {.tile_m = 128, .tile_n = 256, .stages = 4, .split = 3};
  constexpr BlockSchedule kWideSix = {.tile_m = 128, .tile_n = 256, .stages = 4, .split = 6};
  constexpr BlockSchedule kSplitLowSix = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 5, .split = 6};
  static const BlockKernel kernels[] = {
      Make<kDeep, GatedEpilogue>(),          Make<kThree, GatedEpilogue>(),
      Make<kRun, GatedQuantEpilogue>(),      Make<kThreeRun, GatedQuantEpilogue>(),
      Make<kLow, GatedQuantEpilogue>(),      Make<kSplit, GatedEpilogue>(),
      Make<kSplitFour, GatedEpilogue>(),     Make<kSplitNarrow, GatedEpilogue>(),
      Make<kSplitLow, GatedQuantEpilogue>(), Make<kSplitLowFour, GatedQuantEpilogue>(),
      Make<kWide, GatedQuantEpilogue>(),     Make<kWideThree, GatedQuantEpilogue>(),
      Make<kWideSix, GatedQuantEpilogue>(),  Make<kSplitLowSix, GatedQuantEpilogue>(),
      Make<kShares, GatedQuantEpilogue>(),   Make<kSharesLow, GatedQuantEpilogue>(),
      Make<kNarrow, GatedEpilogue>(),        Make<kLow, GatedEpilogue>(),
  };
  return kernels;
}

}  // namespace culet::sm90
