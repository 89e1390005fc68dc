// Instances of the large-M kernel that store FP32: what others round.
#include "kernels/sm90/large_m_instances.cuh"

namespace culet::sm90 {

std::span<const LargeMKernel> LargeMFloat32() {
  //           tile, warpgroups, product, stages, cluster, split, slabs, F32
  static const LargeMKernel kernels[] = {
      MakeLargeM<LargeMConfig<128, 128, 2, 1, 128, 5, 1, 1, 1, 1, true>>(
          "sm90_fp8_block/128x128x128/c1x1/s5/f32"),
      MakeLargeM<LargeMConfig<128, 128, 2, 1, 128, 5, 2, 1, 1, 1, true>>(
          "sm90_fp8_block/128x128x128/c2x1/s5/f32"),
      MakeLargeM<LargeMConfig<256, 128, 2, 1, 128, 4, 1, 1, 1, 1, true>>(
          "sm90_fp8_block/256x128x128/c1x1/s4/f32"),
  };
  return kernels;
}

}  // namespace culet::sm90
