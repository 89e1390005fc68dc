// Few of the large-M kernels, one for each way through them.
#include <vector>

#include "kernels/sm90/instances/block.cuh"
#include "kernels/sm90/instances/gemm_universal_sm90.cuh"
#include "kernels/sm90/product/lists.h"

namespace culet::sm90 {
namespace {

template <class Policy, class Epilogue, BlockSchedule... kSchedules>
std::span<const BlockKernel> Kernels() {
  static const std::vector<BlockKernel> kernels = {
      MakeBlock<BlockConfig<kSchedules, Policy, Epilogue>>()...};
  return kernels;
}

using Plain = PlainEpilogue<OutputType::kBf16>;
using PlainF32 = PlainEpilogue<OutputType::kF32>;

constexpr BlockSchedule kSmall = {.tile_m = 128, .tile_n = 64, .stages = 4};
constexpr BlockSchedule kSlabs = {.tile_m = 128, .tile_n = 96, .stages = 4, .slabs = 2};
constexpr BlockSchedule kThree = {
    .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4, .slabs = 2};
constexpr BlockSchedule kWide = {
    .tile_m = 128, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 3, .slabs = 4};
constexpr BlockSchedule kHigh = {.tile_m = 256, .tile_n = 128, .stages = 3};
constexpr BlockSchedule kShareA = {.tile_m = 128, .tile_n = 64, .stages = 4, .cluster_n = 2};
constexpr BlockSchedule kShareB = {.tile_m = 128, .tile_n = 64, .stages = 4, .cluster_m = 2};
constexpr BlockSchedule kSplit = {.tile_m = 128, .tile_n = 64, .stages = 4, .split = 2};
constexpr BlockSchedule kGrouped = {.tile_m = 128, .tile_n = 64, .stages = 4, .grouped = true};
constexpr BlockSchedule kGroupedThree = {
    .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4, .slabs = 2, .grouped = true};
constexpr BlockSchedule kGroupedWide = {.tile_m = 128,
                                        .tile_n = 256,
                                        .warpgroups_m = 1,
                                        .warpgroups_n = 2,
                                        .stages = 3,
                                        .slabs = 4,
                                        .grouped = true};
constexpr BlockSchedule kGroupedHigh = {.tile_m = 256, .tile_n = 128, .stages = 4, .grouped = true};
constexpr BlockSchedule kTurns = {
    .tile_m = 64, .tile_n = 64, .warpgroups_m = 1, .stages = 4, .slabs = 1, .turns = 2};
constexpr BlockSchedule kCopies = {
    .tile_m = 64, .tile_n = 128, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .copies = true};
// The columns of a scale of D: in a run of tiles, a cluster, two warpgroups, one, split rows.
constexpr BlockSchedule kRun = {.tile_m = 128, .tile_n = 128, .stages = 4, .slabs = 2};
constexpr BlockSchedule kShares = {.tile_m = 128, .tile_n = 64, .stages = 4, .cluster_n = 4};
constexpr BlockSchedule kLow = {
    .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4};
constexpr BlockSchedule kSplitLow = {
    .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 4, .split = 2};

}  // namespace

std::span<const BlockKernel> Fp8Block128xN() {
  static const BlockKernel universal[] = {MakeBlock<GemmUniversalSm90>()};
  static const auto kernels = Joined<BlockKernel>(
      {Kernels<Fp8Block, Plain, kSmall, kSlabs, kWide, kShareA, kShareB>(), universal});
  return kernels;
}
std::span<const BlockKernel> Fp8Block192xN() { return Kernels<Fp8Block, Plain, kThree>(); }
std::span<const BlockKernel> Fp8Block256x128() { return Kernels<Fp8Block, Plain, kHigh>(); }
std::span<const BlockKernel> Fp8BlockSplit() { return Kernels<Fp8Block, Plain, kSplit>(); }
std::span<const BlockKernel> Fp8BlockFloat32() { return Kernels<Fp8Block, PlainF32, kSmall>(); }
std::span<const BlockKernel> GroupedBlocks() {
  return Kernels<Fp8Block, Plain, kGrouped, kGroupedThree, kGroupedWide, kGroupedHigh>();
}
std::span<const BlockKernel> Fp8PreciseBlocks() {
  return Kernels<Fp8Precise, GeneralEpilogue, kSmall>();
}
std::span<const BlockKernel> Fp8FastBlocks() { return Kernels<Fp8Fast, GeneralEpilogue, kTurns>(); }
std::span<const BlockKernel> Bf16Blocks() {
  return Kernels<Bf16Direct, GeneralEpilogue, kSmall, kTurns, kShareB, kSplit>();
}
std::span<const BlockKernel> F16Blocks() { return Kernels<F16Direct, GeneralEpilogue, kSmall>(); }
std::span<const BlockKernel> Fp8GatedBlocks() {
  static const auto kernels = Joined<BlockKernel>(
      {Kernels<Fp8Block, GatedEpilogue, kSmall, kSplit>(),
       Kernels<Fp8Block, GatedQuantEpilogue, kRun, kShares, kLow, kSplitLow>()});
  return kernels;
}
std::span<const BlockKernel> Bf16GatedBlocks() {
  return Kernels<Bf16Direct, GatedEpilogue, kRun, kTurns, kSplit>();
}
std::span<const BlockKernel> Bf16GatedNarrowBlocks() {
  return Kernels<Bf16Direct, GatedQuantEpilogue, kLow>();
}
std::span<const BlockKernel> CopyingBlocks() {
  static const std::vector<BlockKernel> kernels = {
      MakeBlock<BlockConfig<kCopies, Fp8Block, GeneralEpilogue>>(),
      MakeBlock<BlockConfig<kCopies, Bf16Direct, GeneralEpilogue>>()};
  return kernels;
}

}  // namespace culet::sm90
