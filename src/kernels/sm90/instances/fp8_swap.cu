// Block-scaled FP8 products with few tokens.
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

// 64 rows of weights a CTA.
struct Rows64 {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, 34, Hold(2, 3, 4)},
      {{.tokens = 8, .min_ctas = 4, .stage_blocks = 2}, 34, Hold(2)},
      {{.tokens = 16, .min_ctas = 4}, 51, Hold(2, 3, 4)},
      {{.tokens = 16, .min_ctas = 4, .stage_blocks = 2}, 52, Hold(2)},
      {{.tokens = 32, .min_ctas = 4}, 76, Hold(2, 3)},
      {{.tokens = 32, .min_ctas = 2, .stage_blocks = 2}, 90, Hold(1, 2)},
      {{.tokens = 64, .min_ctas = 2}, 128, Hold(2)},
      {{.tokens = 64, .product_tokens = 32, .depth = 1, .min_ctas = 4}, 72, Hold(3, 4), "p32"},
      {{.tokens = 128, .token_groups = 2, .min_ctas = 1}, 168, Hold(1)},
      {{.tokens = 64, .min_ctas = 1, .stage_blocks = 2, .turns = 2}, 136, Hold(1), "t2"},
  };
};
// 128: half the reads of the activations.
struct Rows128 {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 32, .row_groups = 2, .min_ctas = 2}, 76, Hold(1, 2)},
      {{.tokens = 64, .row_groups = 2, .min_ctas = 1}, 168, Hold(1)},
      {{.tokens = 128, .row_groups = 2, .depth = 1, .min_ctas = 1}, 168, Hold(1)},
  };
};
// Tokens between the powers of two, so that no more than a few places of a tile stay empty.
struct Between {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 48, .min_ctas = 2}, 128, Hold(2)},
      {{.tokens = 48, .row_groups = 2, .min_ctas = 1}, 128, Hold(1)},
      {{.tokens = 96, .depth = 1, .min_ctas = 2}, 135, Hold(2)},
      {{.tokens = 96, .row_groups = 2, .depth = 1, .min_ctas = 1}, 135, Hold(1)},
      {{.tokens = 224, .token_groups = 2, .depth = 1, .min_ctas = 1}, 168, Hold(1)},
  };
};
struct Float32 {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 16, .min_ctas = 4}, 51, Hold(2, 4), "f32"},
      {{.tokens = 64, .product_tokens = 32, .depth = 1, .min_ctas = 4}, 75, Hold(1, 3), "f32"},
  };
};

}  // namespace

std::span<const SwapKernel> Fp8Swap64() {
  return SwapInstances<Fp8Block, Rows64, EpilogueKind::kPlain>();
}
std::span<const SwapKernel> Fp8Swap128() {
  return SwapInstances<Fp8Block, Rows128, EpilogueKind::kPlain>();
}
std::span<const SwapKernel> Fp8SwapBetween() {
  return SwapInstances<Fp8Block, Between, EpilogueKind::kPlain>();
}
std::span<const SwapKernel> Fp8SwapFloat32() {
  return SwapInstances<Fp8Block, Float32, EpilogueKind::kPlain, OutputType::kF32>();
}

}  // namespace culet::sm90
