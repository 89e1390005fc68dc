// 64 rows of weights a CTA.
#include "kernels/sm90/swap_kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {.id = "64x8x128",
       .schedule = {.tokens = 8, .min_ctas = 4},
       .registers = 34,
       .residencies = Hold(2, 3, 4)},
      {.id = "64x8x256",
       .schedule = {.tokens = 8, .min_ctas = 4, .stage_blocks = 2},
       .registers = 34,
       .residencies = Hold(2)},
      {.id = "64x16x128",
       .schedule = {.tokens = 16, .min_ctas = 4},
       .registers = 51,
       .residencies = Hold(2, 3, 4)},
      {.id = "64x16x256",
       .schedule = {.tokens = 16, .min_ctas = 4, .stage_blocks = 2},
       .registers = 52,
       .residencies = Hold(2)},
      {.id = "64x32x128",
       .schedule = {.tokens = 32, .min_ctas = 4},
       .registers = 76,
       .residencies = Hold(2, 3)},
      {.id = "64x32x256",
       .schedule = {.tokens = 32, .min_ctas = 2, .stage_blocks = 2},
       .registers = 90,
       .residencies = Hold(1, 2)},
      {.id = "64x64x128",
       .schedule = {.tokens = 64, .min_ctas = 2},
       .registers = 128,
       .residencies = Hold(2)},
      {.id = "64x64x128p32",
       .schedule = {.tokens = 64, .product_tokens = 32, .depth = 1, .min_ctas = 4},
       .registers = 72,
       .residencies = Hold(3, 4)},
      {.id = "64x128x128",
       .schedule = {.tokens = 128, .token_groups = 2, .min_ctas = 1},
       .registers = 168,
       .residencies = Hold(1)},
      {.id = "64x128x128p128",
       .schedule = {.tokens = 128, .depth = 1, .min_ctas = 2},
       .registers = 128,
       .residencies = Hold(2)},
      {.id = "64x256x128",
       .schedule = {.tokens = 256, .token_groups = 2, .depth = 1, .min_ctas = 1},
       .registers = 168,
       .residencies = Hold(1)},
      {.id = "64x64x256t2",
       .schedule = {.tokens = 64, .min_ctas = 1, .stage_blocks = 2, .turns = 2},
       .registers = 136,
       .residencies = Hold(1)},
  };
};

}  // namespace

std::span<const SwapKernel> Fp8Swap64() {
  return SwapInstances<Fp8Block, List, EpilogueKind::kPlain>();
}

}  // namespace culet::sm90
