// Instances of the large-M kernel that store FP32: what others round.
#include "kernels/sm90/fp8_block_instances.cuh"

namespace culet::sm90 {

std::span<const Fp8BlockKernel> Fp8BlockFloat32() {
  //           tile, warpgroups, product, stages, cluster, split, slabs, F32
  static const Fp8BlockKernel kernels[] = {
      MakeFp8Block<Fp8BlockConfig<128, 128, 2, 1, 128, 5, 1, 1, 1, 1, true>>(
          "sm90_fp8_block/128x128x128/c1x1/s5/f32"),
      MakeFp8Block<Fp8BlockConfig<128, 128, 2, 1, 128, 5, 2, 1, 1, 1, true>>(
          "sm90_fp8_block/128x128x128/c2x1/s5/f32"),
      MakeFp8Block<Fp8BlockConfig<256, 128, 2, 1, 128, 4, 1, 1, 1, 1, true>>(
          "sm90_fp8_block/256x128x128/c1x1/s4/f32"),
  };
  return kernels;
}

}  // namespace culet::sm90
