// The instances of formats whose products the tensor core sums over all of K: one list, since
// everything counts bytes.
#pragma once

#include <span>
#include <vector>

#include "kernels/sm90/block_instances.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule, class Policy>
BlockKernel MakeDirect() {
  return MakeBlock<BlockConfig<kSchedule, Policy, GeneralEpilogue>>();
}

/// What all formats have.
template <class Policy>
std::vector<BlockKernel> CommonDirectBlocks() {
  return {
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 256, .stages = 4, .slabs = 2}, Policy>(),
      MakeDirect<BlockSchedule{
                     .tile_m = 128, .tile_n = 256, .stages = 4, .cluster_m = 2, .slabs = 2},
                 Policy>(),
      MakeDirect<BlockSchedule{
                     .tile_m = 128, .tile_n = 256, .stages = 4, .cluster_n = 2, .slabs = 2},
                 Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 256, .tile_n = 128, .stages = 4, .slabs = 2}, Policy>(),
      MakeDirect<BlockSchedule{
                     .tile_m = 256, .tile_n = 128, .stages = 4, .cluster_n = 2, .slabs = 2},
                 Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 224, .stages = 4, .slabs = 2}, Policy>(),
      MakeDirect<BlockSchedule{
                     .tile_m = 128, .tile_n = 224, .stages = 4, .cluster_m = 2, .slabs = 2},
                 Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 192, .stages = 5, .slabs = 1}, Policy>(),
      MakeDirect<BlockSchedule{
                     .tile_m = 128, .tile_n = 192, .stages = 4, .cluster_m = 2, .slabs = 3},
                 Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 176, .stages = 5, .slabs = 1}, Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 160, .stages = 5, .slabs = 2}, Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6, .slabs = 2}, Policy>(),
      MakeDirect<BlockSchedule{
                     .tile_m = 128, .tile_n = 128, .stages = 6, .cluster_n = 2, .slabs = 2},
                 Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 96, .stages = 7, .slabs = 1}, Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 64, .stages = 8, .slabs = 1}, Policy>(),
      MakeDirect<BlockSchedule{
                     .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4, .slabs = 2},
                 Policy>(),
      // Tiles in turn, where K is short.
      MakeDirect<
          BlockSchedule{
              .tile_m = 128, .tile_n = 128, .warpgroups_m = 1, .stages = 6, .slabs = 2, .turns = 2},
          Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128,
                               .tile_n = 128,
                               .warpgroups_m = 1,
                               .stages = 6,
                               .cluster_m = 2,
                               .slabs = 2,
                               .turns = 2},
                 Policy>(),
      MakeDirect<
          BlockSchedule{
              .tile_m = 128, .tile_n = 176, .warpgroups_m = 1, .stages = 5, .slabs = 1, .turns = 2},
          Policy>(),
      MakeDirect<
          BlockSchedule{
              .tile_m = 128, .tile_n = 160, .warpgroups_m = 1, .stages = 5, .slabs = 2, .turns = 2},
          Policy>(),
      MakeDirect<
          BlockSchedule{
              .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .stages = 4, .slabs = 2, .turns = 2},
          Policy>(),
      // K over the CTAs of a cluster, where there are few tiles.
      MakeDirect<BlockSchedule{.tile_m = 256, .tile_n = 128, .stages = 4, .split = 2}, Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2}, Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6, .split = 4}, Policy>(),
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 64, .stages = 8, .split = 2}, Policy>(),
  };
}

/// What BF16 and F16 have besides, for waves that fill the chip: 64 tiles of 96 and 112 columns are
/// 6144 and 7168, eleven of 192 are 2112.
template <class Policy>
void AddHalfBlocks(std::vector<BlockKernel>& kernels) {
  kernels.push_back(
      MakeDirect<
          BlockSchedule{
              .tile_m = 64, .tile_n = 96, .warpgroups_m = 1, .stages = 10, .slabs = 1, .turns = 2},
          Policy>());
  kernels.push_back(
      MakeDirect<
          BlockSchedule{
              .tile_m = 64, .tile_n = 112, .warpgroups_m = 1, .stages = 9, .slabs = 1, .turns = 2},
          Policy>());
  kernels.push_back(
      MakeDirect<
          BlockSchedule{
              .tile_m = 128, .tile_n = 112, .warpgroups_m = 1, .stages = 6, .slabs = 2, .turns = 2},
          Policy>());
  kernels.push_back(MakeDirect<BlockSchedule{.tile_m = 192,
                                             .tile_n = 192,
                                             .warpgroups_m = 1,
                                             .warpgroups_n = 2,
                                             .stages = 4,
                                             .slabs = 2},
                               Policy>());
}

template <class Policy>
std::span<const BlockKernel> DirectBlocks() {
  static const std::vector<BlockKernel> kernels = [] {
    std::vector<BlockKernel> all = CommonDirectBlocks<Policy>();
    AddHalfBlocks<Policy>(all);
    if constexpr (Policy::kInfo.element_bytes == 1) {
      // For M up to 128; those of 224 and of 256 in two warpgroups gained nothing (H200).
      all.push_back(MakeDirect<BlockSchedule{.tile_m = 64,
                                             .tile_n = 192,
                                             .warpgroups_m = 1,
                                             .stages = 6,
                                             .slabs = 2,
                                             .turns = 2},
                               Policy>());
      all.push_back(MakeDirect<BlockSchedule{.tile_m = 64,
                                             .tile_n = 128,
                                             .warpgroups_m = 1,
                                             .warpgroups_n = 2,
                                             .stages = 8,
                                             .slabs = 1},
                               Policy>());
    }
    return all;
  }();
  return kernels;
}

}  // namespace culet::sm90
