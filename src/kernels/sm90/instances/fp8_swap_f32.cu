// Instances of the small-M kernel that store D in FP32.
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 16, .min_ctas = 4}, 51, Hold(2, 4), "f32"},
      {{.tokens = 64, .product_tokens = 32, .depth = 1, .min_ctas = 4}, 75, Hold(1, 3), "f32"},
  };
};

}  // namespace

std::span<const SwapKernel> Fp8SwapFloat32() {
  return SwapInstances<Fp8Block, List, EpilogueKind::kPlain, OutputType::kF32>();
}

}  // namespace culet::sm90
