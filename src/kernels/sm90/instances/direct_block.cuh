// The instances of formats whose products the tensor core sums over all of K. One list serves all
// of them, because everything counts bytes.
#pragma once

#include "kernels/sm90/instances/block.cuh"
#include "kernels/sm90/product/lists.h"

namespace culet::sm90 {

// The lists cover every row of bench/direct_h200.csv.gz, of all formats and both ways to launch,
// within 2 % of the fastest kernel that there was (357 rows of BF16, 108 of FP8). The number beside
// a kernel counts the rows that it covers and that no kernel with a higher number covers, BF16 +
// FP8.

/// The schedules of all formats.
struct DirectList {
  static constexpr BlockSchedule kAll[] = {
      {.tile_m = 128, .tile_n = 256, .stages = 4, .slabs = 2},                  // 9 + 4
      {.tile_m = 256, .tile_n = 128, .stages = 4, .cluster_n = 2, .slabs = 2},  // 6 + 2
      {.tile_m = 128, .tile_n = 224, .stages = 4, .slabs = 2},                  // 1 + 1
      {.tile_m = 128, .tile_n = 192, .stages = 5},                              // 6 + 5
      {.tile_m = 128, .tile_n = 160, .stages = 5, .slabs = 2},                  // 1 + 1
      {.tile_m = 128, .tile_n = 128, .stages = 6, .slabs = 2},                  // 2 + 1
      {.tile_m = 128, .tile_n = 64, .stages = 8},                               // 11 + 10
      // In turns, for short K.
      InTurns({.tile_m = 128, .tile_n = 128, .stages = 6, .slabs = 2}),  // 69 + 37
      InTurns({.tile_m = 128, .tile_n = 176, .stages = 5}),              // 22 + 11
      InTurns({.tile_m = 64, .tile_n = 256, .stages = 4, .slabs = 2}),   // 2 + 6
      // Split-K over the CTAs of a cluster, for few tiles.
      {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2},  // 6 + 4
  };
};

/// More of BF16 and F16, whose widths fill whole waves: 64 tiles of 96 and 112 columns are 6144 and
/// 7168 columns, eleven of 192 are 2112.
struct DirectListOf16Bits {
  static constexpr BlockSchedule kAll[] = {
      {.tile_m = 128, .tile_n = 224, .stages = 4, .cluster_m = 2, .slabs = 2},  // 3
      {.tile_m = 128, .tile_n = 176, .stages = 5},                              // 1
      {.tile_m = 128, .tile_n = 96, .stages = 7},                               // 3
      InTurns({.tile_m = 128, .tile_n = 160, .stages = 5, .slabs = 2}),         // 8
      {.tile_m = 128, .tile_n = 64, .stages = 8, .split = 2},                   // 3
      InTurns({.tile_m = 64, .tile_n = 96, .stages = 10}),                      // 2
      InTurns({.tile_m = 64, .tile_n = 112, .stages = 9}),                      // 4
      InTurns({.tile_m = 128, .tile_n = 112, .stages = 6, .slabs = 2}),         // 1
      SideBySide({.tile_m = 192, .tile_n = 192, .stages = 4, .slabs = 2}),      // 4
  };
};

/// More of FP8.
struct DirectListOf8Bits {
  static constexpr BlockSchedule kAll[] = {
      InTurns({.tile_m = 128, .tile_n = 128, .stages = 6, .cluster_m = 2, .slabs = 2}),  // 5
      // Within 2 % of the fastest in 8 rows, which others cover, too; the untuned choice of one.
      InTurns({.tile_m = 128, .tile_n = 160, .stages = 5, .slabs = 2}),
      // For M up to 128, from a later measurement. Tiles of 224 and of 256 columns in two
      // warpgroups gained nothing (H200).
      InTurns({.tile_m = 64, .tile_n = 192, .stages = 6, .slabs = 2}),
      SideBySide({.tile_m = 64, .tile_n = 128, .stages = 8}),
  };
};

template <class Policy>
std::span<const BlockKernel> DirectBlocks() {
  using Special =
      std::conditional_t<Policy::kInfo.element_bytes == 2, DirectListOf16Bits, DirectListOf8Bits>;
  static const auto kernels =
      Joined<BlockKernel>({BlockInstances<Policy, GeneralEpilogue, DirectList>(),
                           BlockInstances<Policy, GeneralEpilogue, Special>()});
  return kernels;
}

}  // namespace culet::sm90
