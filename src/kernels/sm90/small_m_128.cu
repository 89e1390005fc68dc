// 128 rows of weights a CTA: half the reads of the activations.
#include "kernels/sm90/small_m_kernel.cuh"

namespace culet::sm90 {

std::span<const SmallMKernel> SmallM128() {
  static const SmallMKernel kernels[] = {
      MakeSmallM<SmallMConfig<32, 2, 1, 32, 2, 2>>("128x32x128", 76, 1 << 1 | 1 << 2),
      MakeSmallM<SmallMConfig<64, 2, 1, 64, 2, 1>>("128x64x128", 168, 1 << 1),
      MakeSmallM<SmallMConfig<128, 2, 1, 128, 1, 1>>("128x128x128", 168, 1 << 1),
  };
  return kernels;
}

}  // namespace culet::sm90
