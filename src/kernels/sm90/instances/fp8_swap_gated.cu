// Products with few tokens whose columns are paired, gate and up.
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, 34, Hold(2, 3, 4)},
      {{.tokens = 16, .min_ctas = 4}, 50, Hold(3, 4)},
      {{.tokens = 16, .min_ctas = 4, .stage_blocks = 2}, 52, Hold(2)},
      {{.tokens = 32, .min_ctas = 4}, 78, Hold(3)},
      {{.tokens = 32, .min_ctas = 2, .stage_blocks = 2}, 89, Hold(1, 2)},
      {{.tokens = 64, .min_ctas = 2}, 128, Hold(2)},
      {{.tokens = 64, .min_ctas = 1, .stage_blocks = 2, .turns = 2}, 136, Hold(1), "t2"},
  };
};

// With more tokens the kernel behind, which the others have, is sooner.
struct QuantList {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, 34, Hold(2, 3, 4)},
      {{.tokens = 16, .min_ctas = 4}, 50, Hold(3, 4)},
      {{.tokens = 16, .min_ctas = 4, .stage_blocks = 2}, 51, Hold(2)},
  };
};

}  // namespace

std::span<const SwapKernel> Fp8SwapGated() {
  return SwapInstances<Fp8Block, List, EpilogueKind::kGated>();
}

std::span<const SwapKernel> Fp8SwapGatedQuant() {
  return SwapInstances<Fp8Block, QuantList, EpilogueKind::kGatedQuant>();
}

}  // namespace culet::sm90
