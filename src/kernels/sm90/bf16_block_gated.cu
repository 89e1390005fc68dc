// Instances of the large-M kernel: BF16, gated.
#include "kernels/sm90/block_instances.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule, class Epilogue>
static BlockKernel Make() {
  return MakeBlock<BlockConfig<kSchedule, Bf16Direct, Epilogue>>();
}

std::span<const BlockKernel> Bf16GatedBlocks() {
  constexpr BlockSchedule kWide = {.tile_m = 128, .tile_n = 256, .stages = 4, .slabs = 2};
  constexpr BlockSchedule kWideSharesB = {
      .tile_m = 128, .tile_n = 256, .stages = 4, .cluster_m = 2, .slabs = 2};
  constexpr BlockSchedule kHigh = {.tile_m = 256, .tile_n = 128, .stages = 4, .slabs = 2};
  constexpr BlockSchedule kSmall = {.tile_m = 128, .tile_n = 128, .stages = 6};
  // The epilogue of one tile under the products of the next.
  constexpr BlockSchedule kTurns = {
      .tile_m = 128, .tile_n = 128, .warpgroups_m = 1, .stages = 6, .slabs = 2, .turns = 2};
  constexpr BlockSchedule kTurnsShareB = {.tile_m = 128,
                                          .tile_n = 128,
                                          .warpgroups_m = 1,
                                          .stages = 6,
                                          .cluster_m = 2,
                                          .slabs = 2,
                                          .turns = 2};
  // Of a scale's columns, all in one warpgroup.
  constexpr BlockSchedule kScale = {.tile_m = 128, .tile_n = 256, .stages = 4};
  constexpr BlockSchedule kScaleSharesB = {
      .tile_m = 128, .tile_n = 256, .stages = 4, .cluster_m = 2};
  constexpr BlockSchedule kScaleTurns = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .stages = 5, .turns = 2};
  // Or in four CTAs.
  constexpr BlockSchedule kShares = {.tile_m = 128, .tile_n = 64, .stages = 8, .cluster_n = 4};
  // Half as high: 128 CTAs of a launch all find places, in pairs, but not in fours.
  constexpr BlockSchedule kSharesLow = {.tile_m = 64,
                                        .tile_n = 128,
                                        .warpgroups_m = 1,
                                        .warpgroups_n = 2,
                                        .stages = 8,
                                        .cluster_n = 2};
  // K over the CTAs of a cluster, where there are few tiles.
  constexpr BlockSchedule kSplit = {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2};
  constexpr BlockSchedule kSplitFour = {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 4};
  constexpr BlockSchedule kSplitNarrow = {.tile_m = 128, .tile_n = 64, .stages = 8, .split = 2};
  constexpr BlockSchedule kSplitLow = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .split = 2};
  constexpr BlockSchedule kSplitLowFour = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .split = 4};
  constexpr BlockSchedule kScaleSix = {.tile_m = 128, .tile_n = 256, .stages = 4, .split = 6};
  constexpr BlockSchedule kSplitLowSix = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 5, .split = 6};
  static const BlockKernel kernels[] = {
      Make<kTurns, GatedEpilogue>(),
      Make<kTurnsShareB, GatedEpilogue>(),
      Make<kWide, GatedEpilogue>(),
      Make<kWideSharesB, GatedEpilogue>(),
      Make<kHigh, GatedEpilogue>(),
      Make<kSmall, GatedEpilogue>(),
      Make<kScale, GatedQuantEpilogue>(),
      Make<kScaleSharesB, GatedQuantEpilogue>(),
      Make<kScaleTurns, GatedQuantEpilogue>(),
      Make<kShares, GatedQuantEpilogue>(),
      Make<kSharesLow, GatedQuantEpilogue>(),
      Make<kSplit, GatedEpilogue>(),
      Make<kSplitFour, GatedEpilogue>(),
      Make<kSplitNarrow, GatedEpilogue>(),
      Make<kSplitLow, GatedQuantEpilogue>(),
      Make<kSplitLowFour, GatedQuantEpilogue>(),
      Make<kScaleSix, GatedQuantEpilogue>(),
      Make<kSplitLowSix, GatedQuantEpilogue>(),
  };
  return kernels;
}

}  // namespace culet::sm90
