// The instances of formats whose products the tensor core sums over all of K. One list serves all
// of them, because everything counts bytes.
#pragma once

#include <span>
#include <vector>

#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule, class Policy>
BlockKernel MakeDirect() {
  return MakeBlock<BlockConfig<kSchedule, Policy, GeneralEpilogue>>();
}

// The list covers every row of bench/direct_h200.csv.gz, of all formats and both ways to launch,
// within 2 % of the fastest kernel that there was (357 rows of BF16, 108 of FP8). The number beside
// a kernel counts the rows that it covers and that no kernel with a higher number covers, BF16 +
// FP8.

/// The kernels of all formats.
template <class Policy>
std::vector<BlockKernel> CommonDirectBlocks() {
  return {
      // 9 + 4
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 256, .stages = 4, .slabs = 2}, Policy>(),
      // 6 + 2
      MakeDirect<BlockSchedule{
                     .tile_m = 256, .tile_n = 128, .stages = 4, .cluster_n = 2, .slabs = 2},
                 Policy>(),
      // 1 + 1
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 224, .stages = 4, .slabs = 2}, Policy>(),
      // 6 + 5
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 192, .stages = 5, .slabs = 1}, Policy>(),
      // 1 + 1
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 160, .stages = 5, .slabs = 2}, Policy>(),
      // 2 + 1
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6, .slabs = 2}, Policy>(),
      // 11 + 10
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 64, .stages = 8, .slabs = 1}, Policy>(),
      // Two sets of consumers in turns, for short K. 69 + 37
      MakeDirect<
          BlockSchedule{
              .tile_m = 128, .tile_n = 128, .warpgroups_m = 1, .stages = 6, .slabs = 2, .turns = 2},
          Policy>(),
      // 22 + 11
      MakeDirect<
          BlockSchedule{
              .tile_m = 128, .tile_n = 176, .warpgroups_m = 1, .stages = 5, .slabs = 1, .turns = 2},
          Policy>(),
      // 2 + 6
      MakeDirect<
          BlockSchedule{
              .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .stages = 4, .slabs = 2, .turns = 2},
          Policy>(),
      // Split-K over the CTAs of a cluster, for few tiles. 6 + 4
      MakeDirect<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2}, Policy>(),
  };
}

/// More kernels of BF16 and F16, whose widths fill whole waves: 64 tiles of 96 and 112 columns are
/// 6144 and 7168 columns, eleven of 192 are 2112.
template <class Policy>
void AddOf16Bits(std::vector<BlockKernel>& kernels) {
  const auto add = [&]<BlockSchedule kSchedule>() {
    kernels.push_back(MakeDirect<kSchedule, Policy>());
  };
  add.template operator()<BlockSchedule{
      .tile_m = 128, .tile_n = 224, .stages = 4, .cluster_m = 2, .slabs = 2}>();  // 3
  add.template
  operator()<BlockSchedule{.tile_m = 128, .tile_n = 176, .stages = 5, .slabs = 1}>();  // 1
  add.template
  operator()<BlockSchedule{.tile_m = 128, .tile_n = 96, .stages = 7, .slabs = 1}>();  // 3
  add.template operator()<BlockSchedule{.tile_m = 128,
                                        .tile_n = 160,
                                        .warpgroups_m = 1,
                                        .stages = 5,
                                        .slabs = 2,
                                        .turns = 2}>();  // 8
  add.template
  operator()<BlockSchedule{.tile_m = 128, .tile_n = 64, .stages = 8, .split = 2}>();  // 3
  add.template operator()<BlockSchedule{
      .tile_m = 64, .tile_n = 96, .warpgroups_m = 1, .stages = 10, .slabs = 1, .turns = 2}>();  // 2
  add.template operator()<BlockSchedule{
      .tile_m = 64, .tile_n = 112, .warpgroups_m = 1, .stages = 9, .slabs = 1, .turns = 2}>();  // 4
  add.template operator()<BlockSchedule{.tile_m = 128,
                                        .tile_n = 112,
                                        .warpgroups_m = 1,
                                        .stages = 6,
                                        .slabs = 2,
                                        .turns = 2}>();  // 1
  add.template operator()<BlockSchedule{.tile_m = 192,
                                        .tile_n = 192,
                                        .warpgroups_m = 1,
                                        .warpgroups_n = 2,
                                        .stages = 4,
                                        .slabs = 2}>();  // 4
}

/// More kernels of FP8.
template <class Policy>
void AddOf8Bits(std::vector<BlockKernel>& kernels) {
  const auto add = [&]<BlockSchedule kSchedule>() {
    kernels.push_back(MakeDirect<kSchedule, Policy>());
  };
  add.template operator()<BlockSchedule{.tile_m = 128,
                                        .tile_n = 128,
                                        .warpgroups_m = 1,
                                        .stages = 6,
                                        .cluster_m = 2,
                                        .slabs = 2,
                                        .turns = 2}>();  // 5
  // Within 2 % of the fastest in 8, 8 and 7 rows, which others cover, too.
  add.template operator()<BlockSchedule{
      .tile_m = 128, .tile_n = 160, .warpgroups_m = 1, .stages = 5, .slabs = 2, .turns = 2}>();
  add.template operator()<BlockSchedule{
      .tile_m = 128, .tile_n = 256, .stages = 4, .cluster_m = 2, .slabs = 2}>();
  add.template operator()<BlockSchedule{.tile_m = 256, .tile_n = 128, .stages = 4, .slabs = 2}>();
  // For M up to 128, from a later measurement. Tiles of 224 and of 256 columns in two warpgroups
  // gained nothing (H200).
  add.template operator()<BlockSchedule{
      .tile_m = 64, .tile_n = 192, .warpgroups_m = 1, .stages = 6, .slabs = 2, .turns = 2}>();
  add.template operator()<BlockSchedule{.tile_m = 64,
                                        .tile_n = 128,
                                        .warpgroups_m = 1,
                                        .warpgroups_n = 2,
                                        .stages = 8,
                                        .slabs = 1}>();
}

template <class Policy>
std::span<const BlockKernel> DirectBlocks() {
  static const std::vector<BlockKernel> kernels = [] {
    std::vector<BlockKernel> all = CommonDirectBlocks<Policy>();
    if constexpr (Policy::kInfo.element_bytes == 2)
      AddOf16Bits<Policy>(all);
    else
      AddOf8Bits<Policy>(all);
    return all;
  }();
  return kernels;
}

}  // namespace culet::sm90
