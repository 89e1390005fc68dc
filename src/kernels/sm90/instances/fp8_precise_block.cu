// Instances of the large-M kernel: E4M3 with scales of rows or tensors, promoted every 128 of K.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr BlockSchedule kAll[] = {
      // One stage less, and slabs for all that a warp stores of a tile, are faster where K is
      // short.
      {.tile_m = 256, .tile_n = 128, .stages = 4, .cluster_n = 2, .slabs = 2},
      {.tile_m = 256, .tile_n = 128, .stages = 3, .cluster_n = 2, .slabs = 4},
      SideBySide({.tile_m = 128, .tile_n = 256, .stages = 4, .slabs = 2}),
      SideBySide({.tile_m = 128, .tile_n = 256, .stages = 3, .slabs = 4}),
      SideBySide({.tile_m = 128, .tile_n = 256, .stages = 4, .cluster_n = 2, .slabs = 2}),
      OfThree({.tile_m = 192, .tile_n = 128, .stages = 5}),
      OfThree({.tile_m = 192, .tile_n = 128, .stages = 4, .slabs = 2}),
      OfThree({.tile_m = 192, .tile_n = 192, .stages = 3, .slabs = 3}),
      OfThree({.tile_m = 192, .tile_n = 128, .stages = 4, .cluster_n = 2, .slabs = 2}),
      {.tile_m = 128, .tile_n = 192, .stages = 5},
      {.tile_m = 128, .tile_n = 192, .stages = 4, .cluster_m = 2, .slabs = 3},
      {.tile_m = 128, .tile_n = 160, .stages = 5, .slabs = 2},
      {.tile_m = 128, .tile_n = 128, .stages = 6, .slabs = 2},
      {.tile_m = 128, .tile_n = 128, .stages = 6, .cluster_n = 2, .slabs = 2},
      {.tile_m = 128, .tile_n = 96, .stages = 7},
      {.tile_m = 128, .tile_n = 64, .stages = 8},
      {.tile_m = 128, .tile_n = 112, .stages = 6},
      SideBySide({.tile_m = 128, .tile_n = 224, .stages = 4, .slabs = 2}),
      SideBySide({.tile_m = 128, .tile_n = 224, .stages = 4, .cluster_n = 2, .slabs = 2}),
      SideBySide({.tile_m = 64, .tile_n = 128, .stages = 8}),
      SideBySide({.tile_m = 64, .tile_n = 224, .stages = 5}),
      SideBySide({.tile_m = 64, .tile_n = 256, .stages = 5}),
  };
};

}  // namespace

std::span<const BlockKernel> Fp8PreciseBlocks() {
  return BlockInstances<Fp8Precise, GeneralEpilogue, List>();
}

}  // namespace culet::sm90
