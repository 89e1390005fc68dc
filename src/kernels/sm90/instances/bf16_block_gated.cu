// Instances of the large-M kernel: BF16, gated.
#include "kernels/sm90/instances/gated.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule, class Epilogue>
static BlockKernel Make() {
  return MakeBlock<BlockConfig<kSchedule, Bf16Direct, Epilogue>>();
}

std::span<const BlockKernel> Bf16GatedBlocks() {
  constexpr BlockSchedule kWide = {.tile_m = 128, .tile_n = 256, .stages = 4, .slabs = 2};
  constexpr BlockSchedule kWideSharesB = {
      .tile_m = 128, .tile_n = 256, .stages = 4, .cluster_m = 2, .slabs = 2};
  constexpr BlockSchedule kHigh = {.tile_m = 256, .tile_n = 128, .stages = 4, .slabs = 2};
  constexpr BlockSchedule kSmall = {.tile_m = 128, .tile_n = 128, .stages = 6};
  // The epilogue of one tile runs while the next is multiplied.
  constexpr BlockSchedule kTurns = {
      .tile_m = 128, .tile_n = 128, .warpgroups_m = 1, .stages = 6, .slabs = 2, .turns = 2};
  constexpr BlockSchedule kTurnsShareB = {.tile_m = 128,
                                          .tile_n = 128,
                                          .warpgroups_m = 1,
                                          .stages = 6,
                                          .cluster_m = 2,
                                          .slabs = 2,
                                          .turns = 2};
  // One warpgroup has all columns of a scale.
  constexpr BlockSchedule kScale = {.tile_m = 128, .tile_n = 256, .stages = 4};
  constexpr BlockSchedule kScaleSharesB = {
      .tile_m = 128, .tile_n = 256, .stages = 4, .cluster_m = 2};
  constexpr BlockSchedule kScaleTurns = {
      .tile_m = 64, .tile_n = 256, .warpgroups_m = 1, .stages = 5, .turns = 2};
  static const std::vector<BlockKernel> kernels = [] {
    std::vector<BlockKernel> all = CommonGatedBlocks<Bf16Direct>();
    all.insert(all.end(), {
                              Make<kTurns, GatedEpilogue>(),
                              Make<kTurnsShareB, GatedEpilogue>(),
                              Make<kWide, GatedEpilogue>(),
                              Make<kWideSharesB, GatedEpilogue>(),
                              Make<kHigh, GatedEpilogue>(),
                              Make<kSmall, GatedEpilogue>(),
                              Make<kScale, GatedQuantEpilogue>(),
                              Make<kScaleSharesB, GatedQuantEpilogue>(),
                              Make<kScaleTurns, GatedQuantEpilogue>(),
                          });
    return all;
  }();
  return kernels;
}

}  // namespace culet::sm90
