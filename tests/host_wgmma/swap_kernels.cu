// Few of the kernels for few tokens, one for each way through them.
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

// Whole and sliced boxes, two groups of rows.
struct DirectList {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 16, .min_ctas = 4}, 44, Hold(2)},
      {{.tokens = 32, .min_ctas = 3, .stage_blocks = 2}, 44, Hold(2)},
      {{.tokens = 64, .row_groups = 2, .min_ctas = 2}, 67, Hold(1)},
  };
};
// Scales read first, ahead and beside their products; two groups of tokens, turns.
struct ScaledList {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, 34, Hold(2)},
      {{.tokens = 32, .min_ctas = 2, .stage_blocks = 2}, 90, Hold(2)},
      {{.tokens = 64, .product_tokens = 32, .depth = 1, .min_ctas = 4}, 72, Hold(3), "p32"},
      {{.tokens = 128, .token_groups = 2, .min_ctas = 1}, 168, Hold(1)},
      {{.tokens = 64, .min_ctas = 1, .stage_blocks = 2, .turns = 2}, 136, Hold(1), "t2"},
  };
};
struct OneList {
  static constexpr SwapInstance kAll[] = {{{.tokens = 16, .min_ctas = 4}, 51, Hold(2)}};
};
struct FloatList {
  static constexpr SwapInstance kAll[] = {{{.tokens = 16, .min_ctas = 4}, 51, Hold(2), "f32"}};
};
struct WideList {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 32, .row_groups = 2, .min_ctas = 2}, 76, Hold(2)}};
};

}  // namespace

std::span<const SwapKernel> Bf16Swap() {
  return SwapInstances<Bf16Direct, DirectList, EpilogueKind::kGeneral>();
}
std::span<const SwapKernel> F16Swap() {
  return SwapInstances<F16Direct, OneList, EpilogueKind::kGeneral>();
}
std::span<const SwapKernel> Bf16SwapGated() {
  return SwapInstances<Bf16Direct, OneList, EpilogueKind::kGated>();
}
std::span<const SwapKernel> Bf16SwapGatedQuant() {
  return SwapInstances<Bf16Direct, OneList, EpilogueKind::kGatedQuant>();
}
std::span<const SwapKernel> Fp8Swap64() {
  return SwapInstances<Fp8Block, ScaledList, EpilogueKind::kPlain>();
}
std::span<const SwapKernel> Fp8Swap128() {
  return SwapInstances<Fp8Block, WideList, EpilogueKind::kPlain>();
}
std::span<const SwapKernel> Fp8SwapFloat32() {
  return SwapInstances<Fp8Block, FloatList, EpilogueKind::kPlain, OutputType::kF32>();
}
std::span<const SwapKernel> Fp8SwapGated() {
  return SwapInstances<Fp8Block, OneList, EpilogueKind::kGated>();
}
std::span<const SwapKernel> Fp8SwapGatedQuant() {
  return SwapInstances<Fp8Block, OneList, EpilogueKind::kGatedQuant>();
}
std::span<const SwapKernel> Fp8PreciseSwap() {
  return SwapInstances<Fp8Precise, WideList, EpilogueKind::kGeneral>();
}
std::span<const SwapKernel> Fp8FastSwap() {
  return SwapInstances<Fp8Fast, OneList, EpilogueKind::kGeneral>();
}
std::span<const SwapKernel> Fp8SwapBetween() { return {}; }

}  // namespace culet::sm90
