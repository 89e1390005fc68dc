// Instances of the large-M kernel: tiles of 192 x 96, 112 and 128, three warpgroups.
#include "kernels/sm90/fp8_block_instances.cuh"

namespace culet::sm90 {

std::span<const Fp8BlockKernel> Fp8Block192xN() {
  //           tile, warpgroups, product, stages, cluster, split, slabs
  static const Fp8BlockKernel kernels[] = {
      MakeFp8Block<Fp8BlockConfig<192, 128, 3, 1, 128, 4, 1, 1, 1, 2>>(
          "sm90_fp8_block/192x128x128/c1x1/s4"),
      MakeFp8Block<Fp8BlockConfig<192, 128, 3, 1, 128, 4, 1, 2, 1, 2>>(
          "sm90_fp8_block/192x128x128/c1x2/s4"),
      MakeFp8Block<Fp8BlockConfig<192, 112, 3, 1, 112, 4, 1, 1, 1, 2>>(
          "sm90_fp8_block/192x112x128/c1x1/s4"),
      MakeFp8Block<Fp8BlockConfig<192, 96, 3, 1, 96, 5, 1, 1, 1, 1>>(
          "sm90_fp8_block/192x96x128/c1x1/s5"),
  };
  return kernels;
}

}  // namespace culet::sm90
