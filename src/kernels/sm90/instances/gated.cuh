// The gated instances that several formats have.
#pragma once

#include "kernels/sm90/instances/block.cuh"
#include "kernels/sm90/product/lists.h"

namespace culet::sm90 {

struct CommonGated {
  // Split-K over the CTAs of a cluster, for few tiles.
  static constexpr BlockSchedule kAll[] = {
      {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2},
      {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 4},
      {.tile_m = 128, .tile_n = 64, .stages = 8, .split = 2},
  };
};
struct CommonGatedQuant {
  static constexpr BlockSchedule kAll[] = {
      // The columns of a scale of D lie in the CTAs of a cluster of four, or of two with half as
      // many rows: 128 CTAs of a launch all find places in pairs, but not in fours.
      {.tile_m = 128, .tile_n = 64, .stages = 8, .cluster_n = 4},
      SideBySide({.tile_m = 64, .tile_n = 128, .stages = 8, .cluster_n = 2}),
      SideBySide({.tile_m = 64, .tile_n = 256, .stages = 4, .split = 2}),
      SideBySide({.tile_m = 64, .tile_n = 256, .stages = 4, .split = 4}),
      // For the fewest tiles: there is room for 21 clusters of six.
      SideBySide({.tile_m = 64, .tile_n = 256, .stages = 5, .split = 6}),
      {.tile_m = 128, .tile_n = 256, .stages = 4, .split = 6},
  };
};

/// The common ones and a format's own.
template <class Policy, class Gated, class GatedQuant>
std::span<const BlockKernel> GatedInstances() {
  static const auto kernels =
      Joined<BlockKernel>({BlockInstances<Policy, GatedEpilogue, CommonGated>(),
                           BlockInstances<Policy, GatedEpilogue, Gated>(),
                           BlockInstances<Policy, GatedQuantEpilogue, CommonGatedQuant>(),
                           BlockInstances<Policy, GatedQuantEpilogue, GatedQuant>()});
  return kernels;
}

}  // namespace culet::sm90
