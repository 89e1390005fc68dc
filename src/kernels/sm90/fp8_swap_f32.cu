// Instances of the small-M kernel that store FP32: what others round.
#include "kernels/sm90/fp8_swap_kernel.cuh"

namespace culet::sm90 {

std::span<const Fp8SwapKernel> Fp8SwapFloat32() {
  // As in fp8_swap_64.cu.
  static const Fp8SwapKernel kernels[] = {
      MakeFp8Swap<Fp8SwapF32<Fp8SwapConfig<16, 1, 1, 16, 2, 4>>>("64x16x128f32", 50,
                                                                 1 << 2 | 1 << 4),
      MakeFp8Swap<Fp8SwapF32<Fp8SwapConfig<64, 1, 1, 32, 1, 4>>>("64x64x128f32", 75,
                                                                 1 << 1 | 1 << 3),
  };
  return kernels;
}

}  // namespace culet::sm90
