// Instances of the small-M kernel that store FP32: what others round.
#include "kernels/sm90/small_m_kernel.cuh"

namespace culet::sm90 {

std::span<const SmallMKernel> SmallMFloat32() {
  // As in small_m_64.cu.
  static const SmallMKernel kernels[] = {
      MakeSmallM<SmallMF32<SmallMConfig<16, 1, 1, 16, 2, 4>>>("64x16x128f32", 50, 1 << 2 | 1 << 4),
      MakeSmallM<SmallMF32<SmallMConfig<64, 1, 1, 32, 1, 4>>>("64x64x128f32", 75, 1 << 1 | 1 << 3),
  };
  return kernels;
}

}  // namespace culet::sm90
