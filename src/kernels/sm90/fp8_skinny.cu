// The compiled skinny kernels.
#include "kernels/sm90/fp8_skinny_kernel.cuh"

namespace culet::sm90 {

std::span<const Fp8SkinnyKernel> Fp8SkinnyKernels() {
  // Tiles of 16 rows, k-blocks in flight; registers.
  static const Fp8SkinnyKernel kernels[] = {
      MakeFp8Skinny<Fp8SkinnyConfig<1, 2>>("16x8x2", 70),
      MakeFp8Skinny<Fp8SkinnyConfig<1, 4>>("16x8x4", 70),
      MakeFp8Skinny<Fp8SkinnyConfig<2, 2>>("32x8x2", 102),
      MakeFp8Skinny<Fp8SkinnyConfig<2, 4>>("32x8x4", 102),
      MakeFp8Skinny<Fp8SkinnyConfig<4, 2>>("64x8x2", 124),
      MakeFp8Skinny<Fp8SkinnyConfig<1, 4, true>>("16x8x4f32", 70),
  };
  return kernels;
}

}  // namespace culet::sm90
