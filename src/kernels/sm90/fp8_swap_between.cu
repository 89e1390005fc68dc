// Tokens between the powers of two, so that no more than a few places of a tile stay empty.
#include "kernels/sm90/swap_kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {.id = "64x48x128",
       .schedule = {.tokens = 48, .min_ctas = 2},
       .registers = 127,
       .residencies = Hold(2)},
      {.id = "128x48x128",
       .schedule = {.tokens = 48, .row_groups = 2, .min_ctas = 1},
       .registers = 127,
       .residencies = Hold(1)},
      {.id = "64x96x128",
       .schedule = {.tokens = 96, .depth = 1, .min_ctas = 2},
       .registers = 135,
       .residencies = Hold(2)},
      {.id = "128x96x128",
       .schedule = {.tokens = 96, .row_groups = 2, .depth = 1, .min_ctas = 1},
       .registers = 135,
       .residencies = Hold(1)},
      {.id = "64x192x128",
       .schedule = {.tokens = 192, .token_groups = 2, .depth = 1, .min_ctas = 1},
       .registers = 138,
       .residencies = Hold(1)},
      {.id = "64x224x128",
       .schedule = {.tokens = 224, .token_groups = 2, .depth = 1, .min_ctas = 1},
       .registers = 168,
       .residencies = Hold(1)},
  };
};

}  // namespace

std::span<const SwapKernel> Fp8SwapBetween() {
  return SwapInstances<Fp8Block, List, EpilogueKind::kPlain>();
}

}  // namespace culet::sm90
