// 128 rows of weights a CTA: half the reads of the activations.
#include "kernels/sm90/swap_kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {.id = "128x32x128",
       .schedule = {.tokens = 32, .row_groups = 2, .min_ctas = 2},
       .registers = 76,
       .residencies = Hold(1, 2)},
      {.id = "128x64x128",
       .schedule = {.tokens = 64, .row_groups = 2, .min_ctas = 1},
       .registers = 168,
       .residencies = Hold(1)},
      {.id = "128x128x128",
       .schedule = {.tokens = 128, .row_groups = 2, .depth = 1, .min_ctas = 1},
       .registers = 168,
       .residencies = Hold(1)},
  };
};

}  // namespace

std::span<const SwapKernel> Fp8Swap128() {
  return SwapInstances<Fp8Block, List, EpilogueKind::kPlain>();
}

}  // namespace culet::sm90
