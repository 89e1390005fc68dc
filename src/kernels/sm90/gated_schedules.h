// Schedules of gated tiles that several formats have.
#pragma once

#include "kernels/sm90/block.h"

namespace culet::sm90::gated {

/// The columns of a scale of D in four CTAs that are a cluster, or in two, half as high: 128 CTAs
/// of a launch all find places in pairs, but not in fours.
inline constexpr BlockSchedule kShares = {.tile_m = 128, .tile_n = 64, .stages = 8, .cluster_n = 4};
inline constexpr BlockSchedule kSharesLow = {
    .tile_m = 64, .tile_n = 128, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 8, .cluster_n = 2};

/// K over the CTAs of a cluster, where there are few tiles.
inline constexpr BlockSchedule kSplit = {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2};
inline constexpr BlockSchedule kSplitFour = {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 4};
inline constexpr BlockSchedule kSplitNarrow = {
    .tile_m = 128, .tile_n = 64, .stages = 8, .split = 2};
inline constexpr BlockSchedule kSplitLow = {
    .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .split = 2};
inline constexpr BlockSchedule kSplitLowFour = {
    .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .split = 4};
inline constexpr BlockSchedule kSplitLowSix = {
    .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 5, .split = 6};
/// All columns of a scale in one warpgroup; of clusters of six there are 21.
inline constexpr BlockSchedule kSplitWideSix = {
    .tile_m = 128, .tile_n = 256, .stages = 4, .split = 6};

}  // namespace culet::sm90::gated
