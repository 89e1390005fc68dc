// The instances of formats whose products the tensor core sums over all of K: one list, since
// everything counts bytes.
#pragma once

#include <span>

#include "kernels/sm90/block_instances.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule, class Policy>
BlockKernel MakeDirect() {
  return MakeBlock<BlockConfig<kSchedule, Policy, GeneralEpilogue>>();
}

template <class Policy>
std::span<const BlockKernel> DirectBlocks() {
  static const BlockKernel kernels[] = {
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
  return kernels;
}

}  // namespace culet::sm90
