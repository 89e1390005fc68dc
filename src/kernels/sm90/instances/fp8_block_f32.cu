// Instances of the large-M kernel that store D in FP32.
#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {

template <BlockSchedule kSchedule>
static BlockKernel Float32() {
  return MakeBlock<BlockConfig<kSchedule, Fp8Block, PlainEpilogue<OutputType::kF32>>>();
}

std::span<const BlockKernel> Fp8BlockFloat32() {
  static const BlockKernel kernels[] = {
      Float32<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 5}>(),
      Float32<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 5, .cluster_m = 2}>(),
      Float32<BlockSchedule{.tile_m = 256, .tile_n = 128, .stages = 4}>(),
  };
  return kernels;
}

}  // namespace culet::sm90
