// Instances of the large-M kernel: tiles of 256 x 96 and 112.
#include "kernels/sm90/fp8_block_instances.cuh"

namespace culet::sm90 {

std::span<const Fp8BlockKernel> Fp8Block256xN() {
  //           tile, warpgroups, product, stages, cluster, split, slabs
  static const Fp8BlockKernel kernels[] = {
      MakeFp8Block<Fp8BlockConfig<256, 96, 2, 1, 96, 4, 1, 1, 1, 2>>(
          "sm90_fp8_block/256x96x128/c1x1/s4"),
      MakeFp8Block<Fp8BlockConfig<256, 112, 2, 1, 112, 3, 1, 1, 1, 4>>(
          "sm90_fp8_block/256x112x128/c1x1/s3"),
  };
  return kernels;
}

}  // namespace culet::sm90
