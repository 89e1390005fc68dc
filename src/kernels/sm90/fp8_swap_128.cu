// 128 rows of weights a CTA: half the reads of the activations.
#include "kernels/sm90/fp8_swap_kernel.cuh"

namespace culet::sm90 {

std::span<const Fp8SwapKernel> Fp8Swap128() {
  static const Fp8SwapKernel kernels[] = {
      MakeFp8Swap<Fp8SwapConfig<32, 2, 1, 32, 2, 2>>("128x32x128", 76, 1 << 1 | 1 << 2),
      MakeFp8Swap<Fp8SwapConfig<64, 2, 1, 64, 2, 1>>("128x64x128", 168, 1 << 1),
      MakeFp8Swap<Fp8SwapConfig<128, 2, 1, 128, 1, 1>>("128x128x128", 168, 1 << 1),
  };
  return kernels;
}

}  // namespace culet::sm90
