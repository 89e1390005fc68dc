// Products with up to 8 tokens and a general epilogue: BF16, F16, and E4M3 whose scales the
// epilogue applies. The latter's products are added in FP32, so that the precise ones serve the
// fast, too.
#include "kernels/sm90/skinny_kernel.cuh"

namespace culet::sm90 {
namespace {

struct Half {
  static constexpr SkinnyInstance kAll[] = {{.row_tiles = 1, .depth = 2, .registers = 68},
                                            {.row_tiles = 1, .depth = 4, .registers = 68},
                                            {.row_tiles = 2, .depth = 2, .registers = 94},
                                            {.row_tiles = 2, .depth = 4, .registers = 94},
                                            {.row_tiles = 4, .depth = 2, .registers = 116}};
};
struct Fp8 {
  static constexpr SkinnyInstance kAll[] = {{.row_tiles = 1, .depth = 2, .registers = 72},
                                            {.row_tiles = 1, .depth = 4, .registers = 72},
                                            {.row_tiles = 2, .depth = 2, .registers = 98},
                                            {.row_tiles = 2, .depth = 4, .registers = 98},
                                            {.row_tiles = 4, .depth = 2, .registers = 112}};
};

}  // namespace

std::span<const SkinnyKernel> Bf16Skinny() {
  return SkinnyInstances<Bf16Direct, Half, EpilogueKind::kGeneral>();
}

std::span<const SkinnyKernel> F16Skinny() {
  return SkinnyInstances<F16Direct, Half, EpilogueKind::kGeneral>();
}

std::span<const SkinnyKernel> Fp8PreciseSkinny() {
  return SkinnyInstances<Fp8Precise, Fp8, EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
