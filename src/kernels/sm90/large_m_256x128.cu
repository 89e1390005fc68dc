// Instances of the large-M kernel: tiles of 256 x 128.
#include "kernels/sm90/large_m_instances.cuh"

namespace culet::sm90 {

std::span<const LargeMKernel> LargeM256x128() {
  //           tile, warpgroups, product, stages, cluster, split, slabs
  static const LargeMKernel kernels[] = {
      MakeLargeM<LargeMConfig<256, 128, 2, 1, 128, 4, 1, 1, 1, 1>>(
          "sm90_fp8_block/256x128x128/c1x1/s4"),
      MakeLargeM<LargeMConfig<256, 128, 2, 1, 128, 4, 1, 2, 1, 1>>(
          "sm90_fp8_block/256x128x128/c1x2/s4"),
      MakeLargeM<LargeMConfig<256, 128, 2, 1, 128, 3, 1, 1, 1, 4>>(
          "sm90_fp8_block/256x128x128/c1x1/s3"),
      MakeLargeM<LargeMConfig<256, 128, 2, 1, 128, 3, 1, 2, 1, 4>>(
          "sm90_fp8_block/256x128x128/c1x2/s3"),
  };
  return kernels;
}

}  // namespace culet::sm90
