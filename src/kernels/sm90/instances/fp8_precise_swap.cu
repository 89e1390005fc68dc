// E4M3 products with few tokens: each k-block is added to FP32 sums, the epilogue scales.
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, 48, Hold(2, 3, 4)},
      {{.tokens = 16, .min_ctas = 4}, 46, Hold(2, 3, 4)},
      {{.tokens = 32, .min_ctas = 4}, 58, Hold(2, 3)},
      {{.tokens = 48, .min_ctas = 2}, 80, Hold(2)},
      {{.tokens = 64, .min_ctas = 2}, 105, Hold(2)},
      {{.tokens = 64, .product_tokens = 32, .depth = 1, .min_ctas = 4}, 72, Hold(3, 4), "p32"},
      {{.tokens = 64, .min_ctas = 1, .stage_blocks = 2, .turns = 2}, 102, Hold(1), "t2"},
      {{.tokens = 96, .depth = 1, .min_ctas = 2}, 106, Hold(2)},
      {{.tokens = 128, .token_groups = 2, .min_ctas = 1}, 108, Hold(1)},
      {{.tokens = 192, .token_groups = 2, .depth = 1, .min_ctas = 1}, 106, Hold(1)},
      {{.tokens = 32, .row_groups = 2, .min_ctas = 2}, 58, Hold(1, 2)},
      {{.tokens = 48, .row_groups = 2, .min_ctas = 1}, 83, Hold(1)},
      {{.tokens = 64, .row_groups = 2, .min_ctas = 1}, 108, Hold(1)},
      {{.tokens = 96, .row_groups = 2, .depth = 1, .min_ctas = 1}, 106, Hold(1)},
      {{.tokens = 128, .row_groups = 2, .depth = 1, .min_ctas = 1}, 144, Hold(1)},
  };
};

}  // namespace

std::span<const SwapKernel> Fp8PreciseSwap() {
  return SwapInstances<Fp8Precise, List, EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
