// BF16 products with few tokens whose columns are paired, gate and up.
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, 32, Hold(2, 3, 4)},
      {{.tokens = 16, .min_ctas = 4}, 40, Hold(2, 3, 4)},
      {{.tokens = 32, .min_ctas = 3, .stage_blocks = 2}, 48, Hold(1, 2, 3)},
      {{.tokens = 64, .min_ctas = 2, .stage_blocks = 2}, 72, Hold(1, 2)},
  };
};

// With more tokens the kernel behind, which the others have, is sooner.
struct QuantList {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, 40, Hold(2, 3, 4)},
      {{.tokens = 16, .min_ctas = 4}, 42, Hold(2, 3, 4)},
      {{.tokens = 32, .min_ctas = 3, .stage_blocks = 2}, 51, Hold(1, 2, 3)},
  };
};

}  // namespace

std::span<const SwapKernel> Bf16SwapGated() {
  return SwapInstances<Bf16Direct, List, EpilogueKind::kGated>();
}

std::span<const SwapKernel> Bf16SwapGatedQuant() {
  return SwapInstances<Bf16Direct, QuantList, EpilogueKind::kGatedQuant>();
}

}  // namespace culet::sm90
