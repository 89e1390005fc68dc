// 128 rows of weights a CTA: half the reads of the activations.
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 32, .row_groups = 2, .min_ctas = 2}, 76, Hold(1, 2)},
      {{.tokens = 64, .row_groups = 2, .min_ctas = 1}, 168, Hold(1)},
      {{.tokens = 128, .row_groups = 2, .depth = 1, .min_ctas = 1}, 168, Hold(1)},
  };
};

}  // namespace

std::span<const SwapKernel> Fp8Swap128() {
  return SwapInstances<Fp8Block, List, EpilogueKind::kPlain>();
}

}  // namespace culet::sm90
