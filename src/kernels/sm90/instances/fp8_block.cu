// Instances of the large-M kernel: block-scaled FP8, tiles of 192 and 256 rows, split K, D in FP32,
// and rows by groups.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {
namespace {

using Plain = PlainEpilogue<OutputType::kBf16>;

struct Rows192 {
  static constexpr BlockSchedule kAll[] = {
      OfThree({.tile_m = 192, .tile_n = 128, .stages = 4, .slabs = 2}),
      // 2112 columns are eleven tiles; with 2,048 rows they fill one wave.
      OfThree({.tile_m = 192, .tile_n = 192, .stages = 3, .slabs = 3}),
      OfThree({.tile_m = 192, .tile_n = 128, .stages = 4, .cluster_n = 2, .slabs = 2}),
      OfThree({.tile_m = 192, .tile_n = 112, .stages = 4, .slabs = 2}),
      OfThree({.tile_m = 192, .tile_n = 96, .stages = 5}),
  };
};
struct Rows256 {
  static constexpr BlockSchedule kAll[] = {
      {.tile_m = 256, .tile_n = 128, .stages = 4},
  };
};
struct Split {
  static constexpr BlockSchedule kAll[] = {
      {.tile_m = 256, .tile_n = 128, .stages = 4, .split = 2},
      {.tile_m = 128, .tile_n = 128, .stages = 6, .split = 2},
      {.tile_m = 128, .tile_n = 96, .stages = 7, .split = 2},
      {.tile_m = 128, .tile_n = 64, .stages = 8, .split = 2},
  };
};
struct Float32 {
  static constexpr BlockSchedule kAll[] = {
      {.tile_m = 128, .tile_n = 128, .stages = 5},
      {.tile_m = 128, .tile_n = 128, .stages = 5, .cluster_m = 2},
      {.tile_m = 256, .tile_n = 128, .stages = 4},
  };
};
struct Grouped {
  static constexpr BlockSchedule kAll[] = {
      {.tile_m = 128, .tile_n = 128, .stages = 5, .grouped = true},
      {.tile_m = 128, .tile_n = 192, .stages = 4, .slabs = 2, .grouped = true},
      {.tile_m = 128,
       .tile_n = 256,
       .warpgroups_m = 1,
       .warpgroups_n = 2,
       .stages = 3,
       .slabs = 4,
       .grouped = true},
      // Where 64 or 128 rows are left, warpgroups have no products.
      OfThree({.tile_m = 192, .tile_n = 128, .stages = 4, .slabs = 2, .grouped = true}),
      {.tile_m = 256, .tile_n = 128, .stages = 4, .grouped = true},
  };
};

}  // namespace

std::span<const BlockKernel> Fp8Block192xN() { return BlockInstances<Fp8Block, Plain, Rows192>(); }
std::span<const BlockKernel> Fp8Block256x128() {
  return BlockInstances<Fp8Block, Plain, Rows256>();
}
std::span<const BlockKernel> Fp8BlockSplit() { return BlockInstances<Fp8Block, Plain, Split>(); }
std::span<const BlockKernel> Fp8BlockFloat32() {
  return BlockInstances<Fp8Block, PlainEpilogue<OutputType::kF32>, Float32>();
}
std::span<const BlockKernel> GroupedBlocks() { return BlockInstances<Fp8Block, Plain, Grouped>(); }

}  // namespace culet::sm90
