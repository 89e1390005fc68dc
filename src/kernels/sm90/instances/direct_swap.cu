// Products with few tokens of formats whose k-blocks the tensor core sums itself. Without products
// apart from the sums and without scales they need few registers, so that shared memory alone, the
// ring, decides how many CTAs a multiprocessor holds.
//
// 64 rows of weights a CTA; then 128, which halve the reads of the activations. A number: rows of
// bench/direct_h200.csv.gz that are within 2 % of the fastest by this kernel and by none of a
// higher number (357 rows of BF16, 108 of FP8).
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

struct Of16Bits {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, 46, Hold(2, 3, 4)},                      // 2
      {{.tokens = 8, .min_ctas = 4, .stage_blocks = 2}, 48, Hold(2, 3)},      // 64
      {{.tokens = 16, .min_ctas = 4}, 44, Hold(2, 3, 4)},                     // 2
      {{.tokens = 16, .min_ctas = 4, .stage_blocks = 2}, 48, Hold(2, 3)},     // 26
      {{.tokens = 32, .min_ctas = 4}, 44, Hold(2, 3, 4)},                     // 1
      {{.tokens = 32, .min_ctas = 3, .stage_blocks = 2}, 44, Hold(1, 2, 3)},  // 22
      {{.tokens = 64, .min_ctas = 4}, 67, Hold(2, 3, 4)},                     // 1
      {{.tokens = 64, .min_ctas = 2, .stage_blocks = 2}, 72, Hold(1, 2)},     // 36
      {{.tokens = 32, .row_groups = 2, .min_ctas = 2}, 44, Hold(1, 2)},       // 2
      {{.tokens = 64, .row_groups = 2, .min_ctas = 2}, 67, Hold(1, 2)},       // 14
      {{.tokens = 96, .row_groups = 2, .min_ctas = 2}, 86, Hold(1, 2)},       // on an H100
  };
};
struct Of8Bits {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 16, .min_ctas = 4}, 44, Hold(2, 3, 4)},                     // on an H100
      {{.tokens = 16, .min_ctas = 4, .stage_blocks = 2}, 44, Hold(2, 3)},     // on an H100
      {{.tokens = 32, .min_ctas = 4}, 44, Hold(2, 3, 4)},                     // on an H100
      {{.tokens = 32, .min_ctas = 3, .stage_blocks = 2}, 44, Hold(1, 2, 3)},  // 3
      {{.tokens = 64, .min_ctas = 4}, 67, Hold(2, 3, 4)},                     // 3
      {{.tokens = 64, .min_ctas = 2, .stage_blocks = 2}, 72, Hold(1, 2)},     // 14
      {{.tokens = 64, .row_groups = 2, .min_ctas = 2}, 67, Hold(1, 2)},       // on an H100
      {{.tokens = 96, .row_groups = 2, .min_ctas = 2}, 86, Hold(1, 2)},       // on an H100
  };
};

}  // namespace

std::span<const SwapKernel> Bf16Swap() {
  return SwapInstances<Bf16Direct, Of16Bits, EpilogueKind::kGeneral>();
}
std::span<const SwapKernel> F16Swap() {
  return SwapInstances<F16Direct, Of16Bits, EpilogueKind::kGeneral>();
}
std::span<const SwapKernel> Fp8FastSwap() {
  return SwapInstances<Fp8Fast, Of8Bits, EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
