// Tokens between the powers of two, so that no more than a few places of a tile stay empty.
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 48, .min_ctas = 2}, 128, Hold(2)},
      {{.tokens = 48, .row_groups = 2, .min_ctas = 1}, 128, Hold(1)},
      {{.tokens = 96, .depth = 1, .min_ctas = 2}, 135, Hold(2)},
      {{.tokens = 96, .row_groups = 2, .depth = 1, .min_ctas = 1}, 135, Hold(1)},
      {{.tokens = 224, .token_groups = 2, .depth = 1, .min_ctas = 1}, 168, Hold(1)},
  };
};

}  // namespace

std::span<const SwapKernel> Fp8SwapBetween() {
  return SwapInstances<Fp8Block, List, EpilogueKind::kPlain>();
}

}  // namespace culet::sm90
