// 128 rows of weights a CTA: half the reads of the activations.
#include "kernels/sm90/small_m_kernel.cuh"

namespace culet::sm90 {

std::span<const SmallMKernel> SmallM128() {
  static const SmallMKernel kernels[] = {
      MakeSmallM<SmallMConfig<8, 2, 1, 8, 2, 2>>("128x8x128", 38, 1 << 1 | 1 << 2),
      MakeSmallM<SmallMConfig<16, 2, 1, 16, 2, 2>>("128x16x128", 48, 1 << 1 | 1 << 2),
      MakeSmallM<SmallMConfig<32, 2, 1, 32, 2, 2>>("128x32x128", 76, 1 << 1 | 1 << 2),
      MakeSmallM<SmallMConfig<64, 2, 1, 64, 2, 1>>("128x64x128", 141, 1 << 1),
      MakeSmallM<SmallMConfig<128, 2, 2, 64, 1, 1>>("128x128x128", 92, 1 << 1),
  };
  return kernels;
}

}  // namespace culet::sm90
