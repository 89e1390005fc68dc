// Instances of the large-M kernel: tiles that a cluster splits along K.
#include "kernels/sm90/fp8_block_instances.cuh"

namespace culet::sm90 {

std::span<const Fp8BlockKernel> Fp8BlockSplit() {
  //           tile, warpgroups, product, stages, cluster, split, slabs
  static const Fp8BlockKernel kernels[] = {
      MakeFp8Block<Fp8BlockConfig<256, 128, 2, 1, 128, 4, 1, 1, 2, 1>>(
          "sm90_fp8_block/256x128x128/c1x1/s4/k2"),
      MakeFp8Block<Fp8BlockConfig<256, 96, 2, 1, 96, 4, 1, 1, 2, 2>>(
          "sm90_fp8_block/256x96x128/c1x1/s4/k2"),
      MakeFp8Block<Fp8BlockConfig<128, 128, 2, 1, 128, 6, 1, 1, 2, 1>>(
          "sm90_fp8_block/128x128x128/c1x1/s6/k2"),
      MakeFp8Block<Fp8BlockConfig<128, 96, 2, 1, 96, 7, 1, 1, 2, 1>>(
          "sm90_fp8_block/128x96x128/c1x1/s7/k2"),
      MakeFp8Block<Fp8BlockConfig<128, 64, 2, 1, 64, 8, 1, 1, 2, 1>>(
          "sm90_fp8_block/128x64x128/c1x1/s8/k2"),
  };
  return kernels;
}

}  // namespace culet::sm90
