// Instances of the large-M kernel: block-scaled FP8, gated.
#include "kernels/sm90/instances/gated.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule, class Epilogue>
static BlockKernel Make() {
  return MakeBlock<BlockConfig<kSchedule, Fp8Block, Epilogue>>();
}

std::span<const BlockKernel> Fp8GatedBlocks() {
  // One warpgroup promotes, or runs its epilogue, while the other multiplies.
  constexpr BlockSchedule kRun = {.tile_m = 128, .tile_n = 128, .stages = 5, .slabs = 2};
  constexpr BlockSchedule kDeep = {.tile_m = 128, .tile_n = 128, .stages = 6, .lag = 500};
  constexpr BlockSchedule kThree = {
      .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4, .lag = 350};
  constexpr BlockSchedule kThreeRun = {
      .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4, .slabs = 2, .lag = 350};
  // Two warpgroups share scales: twice as many tiles as with runs, for few tiles.
  constexpr BlockSchedule kLow = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .warpgroups_n = 2, .stages = 5};
  // A block of B's scales may end within a tile.
  constexpr BlockSchedule kBetween = {.tile_m = 128, .tile_n = 96, .stages = 6};
  constexpr BlockSchedule kBetweenThree = {
      .tile_m = 192, .tile_n = 96, .warpgroups_m = 3, .stages = 5};
  // A cluster of two has the columns of a scale: fewer tiles than with runs.
  constexpr BlockSchedule kThreePair = {
      .tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 5, .cluster_n = 2};
  constexpr BlockSchedule kNarrow = {.tile_m = 128, .tile_n = 64, .stages = 8};
  // One warpgroup has all columns of a scale.
  constexpr BlockSchedule kWide = {.tile_m = 128, .tile_n = 256, .stages = 4, .lag = 1400};
  constexpr BlockSchedule kWideThree = {.tile_m = 128, .tile_n = 256, .stages = 4, .split = 3};
  static const std::vector<BlockKernel> kernels = [] {
    std::vector<BlockKernel> all = CommonGatedBlocks<Fp8Block>();
    all.insert(all.end(), {
                              Make<kDeep, GatedEpilogue>(),
                              Make<kThree, GatedEpilogue>(),
                              Make<kNarrow, GatedEpilogue>(),
                              Make<kBetween, GatedEpilogue>(),
                              Make<kBetweenThree, GatedEpilogue>(),
                              Make<kThreePair, GatedQuantEpilogue>(),
                              Make<kLow, GatedEpilogue>(),
                              Make<kRun, GatedQuantEpilogue>(),
                              Make<kThreeRun, GatedQuantEpilogue>(),
                              Make<kLow, GatedQuantEpilogue>(),
                              Make<kWide, GatedQuantEpilogue>(),
                              Make<kWideThree, GatedQuantEpilogue>(),
                          });
    return all;
  }();
  return kernels;
}

}  // namespace culet::sm90
