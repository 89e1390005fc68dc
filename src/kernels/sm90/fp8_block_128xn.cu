// Instances of the large-M kernel: tiles of 128 x 64 to 256.
#include "kernels/sm90/fp8_block_instances.cuh"

namespace culet::sm90 {

// The first rung of the ladder in docs/performance-log.md: two warpgroups side by side along N, a
// cluster of two CTAs that share B.
using GemmUniversalSm90 = Fp8BlockConfig<128, 224, 1, 2, 112, 3, 2, 1, 1, 2>;

std::span<const Fp8BlockKernel> Fp8Block128xN() {
  //           tile, warpgroups, product, stages, cluster, split, slabs
  static const Fp8BlockKernel kernels[] = {
      MakeFp8Block<Fp8BlockConfig<128, 128, 2, 1, 128, 5, 1, 2, 1, 2>>(
          "sm90_fp8_block/128x128x128/c1x2/s5"),
      MakeFp8Block<Fp8BlockConfig<128, 128, 2, 1, 128, 5, 1, 1, 1, 2>>(
          "sm90_fp8_block/128x128x128/c1x1/s5"),
      MakeFp8Block<Fp8BlockConfig<128, 128, 2, 1, 128, 6, 1, 1, 1, 1>>(
          "sm90_fp8_block/128x128x128/c1x1/s6"),
      MakeFp8Block<Fp8BlockConfig<128, 192, 2, 1, 192, 4, 2, 1, 1, 3>>(
          "sm90_fp8_block/128x192x128/c2x1/s4"),
      MakeFp8Block<Fp8BlockConfig<128, 192, 2, 1, 192, 4, 1, 2, 1, 3>>(
          "sm90_fp8_block/128x192x128/c1x2/s4"),
      MakeFp8Block<Fp8BlockConfig<128, 256, 1, 2, 128, 4, 1, 1, 1, 1>>(
          "sm90_fp8_block/128x256x128/c1x1/s4"),
      MakeFp8Block<Fp8BlockConfig<128, 256, 1, 2, 128, 3, 1, 1, 1, 2>>(
          "sm90_fp8_block/128x256x128/c1x1/s3"),
      MakeFp8Block<Fp8BlockConfig<128, 256, 1, 2, 128, 3, 1, 2, 1, 2>>(
          "sm90_fp8_block/128x256x128/c1x2/s3"),
      MakeFp8Block<Fp8BlockConfig<128, 160, 2, 1, 160, 5, 2, 1, 1, 2>>(
          "sm90_fp8_block/128x160x128/c2x1/s5"),
      MakeFp8Block<Fp8BlockConfig<128, 112, 2, 1, 112, 6, 1, 1, 1, 2>>(
          "sm90_fp8_block/128x112x128/c1x1/s6"),
      MakeFp8Block<Fp8BlockConfig<128, 96, 2, 1, 96, 6, 1, 1, 1, 2>>(
          "sm90_fp8_block/128x96x128/c1x1/s6"),
      MakeFp8Block<Fp8BlockConfig<128, 96, 2, 1, 96, 7, 1, 1, 1, 1>>(
          "sm90_fp8_block/128x96x128/c1x1/s7"),
      MakeFp8Block<Fp8BlockConfig<128, 80, 2, 1, 80, 7, 1, 1, 1, 2>>(
          "sm90_fp8_block/128x80x128/c1x1/s7"),
      MakeFp8Block<Fp8BlockConfig<128, 64, 2, 1, 64, 8, 1, 1, 1, 1>>(
          "sm90_fp8_block/128x64x128/c1x1/s8"),
      MakeFp8Block<Fp8BlockConfig<128, 192, 2, 1, 192, 4, 1, 1, 1, 3>>(
          "sm90_fp8_block/128x192x128/c1x1/s4"),
      MakeFp8Block<GemmUniversalSm90>("sm90_fp8_block/128x224x128/c2x1/s3"),
  };
  return kernels;
}

}  // namespace culet::sm90
