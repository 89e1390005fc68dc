// Instances of the large-M kernel: tiles of 128 x 64 to 256.
#include "kernels/sm90/large_m_instances.cuh"

namespace culet::sm90 {

// The first rung of the ladder in docs/performance-log.md: two warpgroups side by side along N, a
// cluster of two CTAs that share B.
using GemmUniversalSm90 = LargeMConfig<128, 224, 1, 2, 112, 3, 2, 1, 1, 2>;

std::span<const LargeMKernel> LargeM128xN() {
  //           tile, warpgroups, product, stages, cluster, split, slabs
  static const LargeMKernel kernels[] = {
      MakeLargeM<LargeMConfig<128, 128, 2, 1, 128, 5, 1, 2, 1, 2>>(
          "sm90_fp8_block/128x128x128/c1x2/s5"),
      MakeLargeM<LargeMConfig<128, 128, 2, 1, 128, 5, 1, 1, 1, 2>>(
          "sm90_fp8_block/128x128x128/c1x1/s5"),
      MakeLargeM<LargeMConfig<128, 128, 2, 1, 128, 6, 1, 1, 1, 1>>(
          "sm90_fp8_block/128x128x128/c1x1/s6"),
      MakeLargeM<LargeMConfig<128, 192, 2, 1, 192, 4, 2, 1, 1, 3>>(
          "sm90_fp8_block/128x192x128/c2x1/s4"),
      MakeLargeM<LargeMConfig<128, 192, 2, 1, 192, 4, 1, 2, 1, 3>>(
          "sm90_fp8_block/128x192x128/c1x2/s4"),
      MakeLargeM<LargeMConfig<128, 256, 1, 2, 128, 4, 1, 1, 1, 1>>(
          "sm90_fp8_block/128x256x128/c1x1/s4"),
      MakeLargeM<LargeMConfig<128, 256, 1, 2, 128, 3, 1, 1, 1, 2>>(
          "sm90_fp8_block/128x256x128/c1x1/s3"),
      MakeLargeM<LargeMConfig<128, 256, 1, 2, 128, 3, 1, 2, 1, 2>>(
          "sm90_fp8_block/128x256x128/c1x2/s3"),
      MakeLargeM<LargeMConfig<128, 160, 2, 1, 160, 5, 2, 1, 1, 2>>(
          "sm90_fp8_block/128x160x128/c2x1/s5"),
      MakeLargeM<LargeMConfig<128, 112, 2, 1, 112, 6, 1, 1, 1, 2>>(
          "sm90_fp8_block/128x112x128/c1x1/s6"),
      MakeLargeM<LargeMConfig<128, 96, 2, 1, 96, 6, 1, 1, 1, 2>>(
          "sm90_fp8_block/128x96x128/c1x1/s6"),
      MakeLargeM<LargeMConfig<128, 96, 2, 1, 96, 7, 1, 1, 1, 1>>(
          "sm90_fp8_block/128x96x128/c1x1/s7"),
      MakeLargeM<LargeMConfig<128, 64, 2, 1, 64, 8, 1, 1, 1, 1>>(
          "sm90_fp8_block/128x64x128/c1x1/s8"),
      MakeLargeM<LargeMConfig<128, 192, 2, 1, 192, 4, 1, 1, 1, 3>>(
          "sm90_fp8_block/128x192x128/c1x1/s4"),
      MakeLargeM<GemmUniversalSm90>("sm90_fp8_block/128x224x128/c2x1/s3"),
  };
  return kernels;
}

}  // namespace culet::sm90
