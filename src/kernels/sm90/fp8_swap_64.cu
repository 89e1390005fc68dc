// 64 rows of weights a CTA.
#include "kernels/sm90/fp8_swap_kernel.cuh"

namespace culet::sm90 {

std::span<const Fp8SwapKernel> Fp8Swap64() {
  // Tokens, warpgroups along rows and tokens, tokens a product, products in flight, CTAs a
  // multiprocessor must be able to hold, k-blocks of a stage.
  static const Fp8SwapKernel kernels[] = {
      MakeFp8Swap<Fp8SwapConfig<8, 1, 1, 8, 2, 4>>("64x8x128", 34, 1 << 2 | 1 << 3 | 1 << 4),
      MakeFp8Swap<Fp8SwapConfig<8, 1, 1, 8, 2, 4, 2>>("64x8x256", 34, 1 << 2),
      MakeFp8Swap<Fp8SwapConfig<16, 1, 1, 16, 2, 4>>("64x16x128", 51, 1 << 2 | 1 << 3 | 1 << 4),
      MakeFp8Swap<Fp8SwapConfig<16, 1, 1, 16, 2, 4, 2>>("64x16x256", 52, 1 << 2),
      MakeFp8Swap<Fp8SwapConfig<32, 1, 1, 32, 2, 4>>("64x32x128", 76, 1 << 2 | 1 << 3),
      MakeFp8Swap<Fp8SwapConfig<32, 1, 1, 32, 2, 2, 2>>("64x32x256", 90, 1 << 1 | 1 << 2),
      MakeFp8Swap<Fp8SwapConfig<64, 1, 1, 64, 2, 2>>("64x64x128", 128, 1 << 2),
      MakeFp8Swap<Fp8SwapConfig<64, 1, 1, 32, 1, 4>>("64x64x128p32", 72, 1 << 3 | 1 << 4),
      MakeFp8Swap<Fp8SwapConfig<128, 1, 2, 64, 2, 1>>("64x128x128", 168, 1 << 1),
      MakeFp8Swap<Fp8SwapConfig<128, 1, 1, 128, 1, 2>>("64x128x128p128", 128, 1 << 2),
      MakeFp8Swap<Fp8SwapConfig<256, 1, 2, 128, 1, 1>>("64x256x128", 168, 1 << 1),
      MakeFp8Swap<Fp8SwapConfig<64, 1, 1, 64, 2, 1, 2, 2>>("64x64x256t2", 136, 1 << 1),
  };
  return kernels;
}

}  // namespace culet::sm90
