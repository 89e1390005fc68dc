// 64 rows of weights a CTA.
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
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

}  // namespace

std::span<const SwapKernel> Fp8Swap64() {
  return SwapInstances<Fp8Block, List, EpilogueKind::kPlain>();
}

}  // namespace culet::sm90
