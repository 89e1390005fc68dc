// The compiled skinny kernels.
#include "kernels/sm90/skinny_kernel.cuh"

namespace culet::sm90 {

std::span<const SkinnyKernel> SkinnyKernels() {
  // Tiles of 16 rows, k-blocks in flight; registers.
  static const SkinnyKernel kernels[] = {
      MakeSkinny<SkinnyConfig<1, 2>>("16x8x2", 70),
      MakeSkinny<SkinnyConfig<1, 4>>("16x8x4", 70),
      MakeSkinny<SkinnyConfig<2, 2>>("32x8x2", 102),
      MakeSkinny<SkinnyConfig<2, 4>>("32x8x4", 102),
      MakeSkinny<SkinnyConfig<4, 2>>("64x8x2", 124),
      MakeSkinny<SkinnyConfig<1, 4, true>>("16x8x4f32", 70),
  };
  return kernels;
}

}  // namespace culet::sm90
