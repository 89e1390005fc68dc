// Instances of the large-M kernel: block-scaled FP8, gated.
#include "kernels/sm90/block_instances.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule, class Epilogue>
static BlockKernel Make() {
  return MakeBlock<BlockConfig<kSchedule, Fp8Block, Epilogue>>();
}

std::span<const BlockKernel> Fp8GatedBlocks() {
  // A warpgroup's promotion, and its epilogue, under the other's products.
  constexpr BlockSchedule kSmall = {.tile_m = 128, .tile_n = 128, .stages = 5, .slabs = 2};
  constexpr BlockSchedule kDeep = {.tile_m = 128, .tile_n = 128, .stages = 6};
  constexpr BlockSchedule kHigh = {.tile_m = 256, .tile_n = 128, .stages = 4};
  constexpr BlockSchedule kThree = {.tile_m = 192, .tile_n = 128, .warpgroups_m = 3, .stages = 4};
  static const BlockKernel kernels[] = {
      Make<kSmall, GatedEpilogue>(),      Make<kDeep, GatedEpilogue>(),
      Make<kHigh, GatedEpilogue>(),       Make<kThree, GatedEpilogue>(),
      Make<kSmall, GatedQuantEpilogue>(),
  };
  return kernels;
}

}  // namespace culet::sm90
