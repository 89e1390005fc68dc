// Tokens between the powers of two, so that no more than a few places of a tile stay empty.
#include "kernels/sm90/fp8_swap_kernel.cuh"

namespace culet::sm90 {

std::span<const Fp8SwapKernel> Fp8SwapBetween() {
  // As in fp8_swap_64.cu.
  static const Fp8SwapKernel kernels[] = {
      MakeFp8Swap<Fp8SwapConfig<48, 1, 1, 48, 2, 2>>("64x48x128", 127, 1 << 2),
      MakeFp8Swap<Fp8SwapConfig<48, 2, 1, 48, 2, 1>>("128x48x128", 127, 1 << 1),
      MakeFp8Swap<Fp8SwapConfig<96, 1, 1, 96, 1, 2>>("64x96x128", 135, 1 << 2),
      MakeFp8Swap<Fp8SwapConfig<96, 2, 1, 96, 1, 1>>("128x96x128", 135, 1 << 1),
      MakeFp8Swap<Fp8SwapConfig<192, 1, 2, 96, 1, 1>>("64x192x128", 138, 1 << 1),
      MakeFp8Swap<Fp8SwapConfig<224, 1, 2, 112, 1, 1>>("64x224x128", 168, 1 << 1),
  };
  return kernels;
}

}  // namespace culet::sm90
