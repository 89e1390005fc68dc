// The gated instances that several formats have.
#pragma once

#include <vector>

#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

template <class Policy>
std::vector<BlockKernel> CommonGatedBlocks() {
  // The columns of a scale of D lie in the CTAs of a cluster of four, or of two with half as many
  // rows: 128 CTAs of a launch all find places in pairs, but not in fours.
  constexpr BlockSchedule kShares = {.tile_m = 128, .tile_n = 64, .stages = 8, .cluster_n = 4};
  constexpr BlockSchedule kSharesLow = {.tile_m = 64,
                                        .tile_n = 128,
                                        .warpgroups_m = 1,
                                        .warpgroups_n = 2,
                                        .stages = 8,
                                        .cluster_n = 2};
  // Split-K over the CTAs of a cluster, for few tiles.
  constexpr BlockSchedule kSplit = {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2};
  constexpr BlockSchedule kSplitFour = {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 4};
  constexpr BlockSchedule kSplitNarrow = {.tile_m = 128, .tile_n = 64, .stages = 8, .split = 2};
  constexpr BlockSchedule kSplitLow = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .split = 2};
  constexpr BlockSchedule kSplitLowFour = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .split = 4};
  // For the fewest tiles: there is room for 21 clusters of six.
  constexpr BlockSchedule kSplitLowSix = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 5, .split = 6};
  constexpr BlockSchedule kSplitWideSix = {.tile_m = 128, .tile_n = 256, .stages = 4, .split = 6};
  return {
      MakeBlock<BlockConfig<kSplit, Policy, GatedEpilogue>>(),
      MakeBlock<BlockConfig<kSplitFour, Policy, GatedEpilogue>>(),
      MakeBlock<BlockConfig<kSplitNarrow, Policy, GatedEpilogue>>(),
      MakeBlock<BlockConfig<kShares, Policy, GatedQuantEpilogue>>(),
      MakeBlock<BlockConfig<kSharesLow, Policy, GatedQuantEpilogue>>(),
      MakeBlock<BlockConfig<kSplitLow, Policy, GatedQuantEpilogue>>(),
      MakeBlock<BlockConfig<kSplitLowFour, Policy, GatedQuantEpilogue>>(),
      MakeBlock<BlockConfig<kSplitLowSix, Policy, GatedQuantEpilogue>>(),
      MakeBlock<BlockConfig<kSplitWideSix, Policy, GatedQuantEpilogue>>(),
  };
}

}  // namespace culet::sm90
