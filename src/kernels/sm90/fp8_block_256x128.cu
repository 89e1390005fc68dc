// Instances of the large-M kernel: tiles of 256 x 128.
#include "kernels/sm90/fp8_block_instances.cuh"

namespace culet::sm90 {

std::span<const Fp8BlockKernel> Fp8Block256x128() {
  //           tile, warpgroups, product, stages, cluster, split, slabs
  static const Fp8BlockKernel kernels[] = {
      MakeFp8Block<Fp8BlockConfig<256, 128, 2, 1, 128, 4, 1, 1, 1, 1>>(
          "sm90_fp8_block/256x128x128/c1x1/s4"),
      MakeFp8Block<Fp8BlockConfig<256, 128, 2, 1, 128, 4, 1, 2, 1, 1>>(
          "sm90_fp8_block/256x128x128/c1x2/s4"),
      MakeFp8Block<Fp8BlockConfig<256, 128, 2, 1, 128, 3, 1, 1, 1, 4>>(
          "sm90_fp8_block/256x128x128/c1x1/s3"),
      MakeFp8Block<Fp8BlockConfig<256, 128, 2, 1, 128, 3, 1, 2, 1, 4>>(
          "sm90_fp8_block/256x128x128/c1x2/s3"),
  };
  return kernels;
}

}  // namespace culet::sm90
