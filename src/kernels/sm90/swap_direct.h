// The instances of formats whose k-blocks the tensor core sums itself. Without products apart from
// the sums and without scales they need few registers, so that shared memory alone, the ring,
// decides how many CTAs a multiprocessor holds.
#pragma once

#include "kernels/sm90/swap.h"

namespace culet::sm90 {

/// Of 16-bit formats: k-blocks are 64 deep. 64 rows of weights a CTA; then 128, which halve the
/// reads of the activations.
struct SwapDirectHalf {
  static constexpr SwapInstance kAll[] = {
      {"64x8x64", {.tokens = 8, .min_ctas = 4}, 46, Hold(2, 3, 4)},
      {"64x8x128", {.tokens = 8, .min_ctas = 4, .stage_blocks = 2}, 46, Hold(2, 3)},
      {"64x16x64", {.tokens = 16, .min_ctas = 4}, 44, Hold(2, 3, 4)},
      {"64x16x128", {.tokens = 16, .min_ctas = 4, .stage_blocks = 2}, 44, Hold(2, 3)},
      {"64x32x64", {.tokens = 32, .min_ctas = 4}, 44, Hold(2, 3, 4)},
      {"64x32x128", {.tokens = 32, .min_ctas = 3, .stage_blocks = 2}, 44, Hold(1, 2, 3)},
      {"64x48x64", {.tokens = 48, .min_ctas = 4}, 56, Hold(2, 3)},
      {"64x64x64", {.tokens = 64, .min_ctas = 4}, 67, Hold(2, 3, 4)},
      {"64x64x128", {.tokens = 64, .min_ctas = 2, .stage_blocks = 2}, 72, Hold(1, 2)},
      {"64x96x64", {.tokens = 96, .min_ctas = 2}, 105, Hold(2)},
      {"64x128x64", {.tokens = 128, .min_ctas = 2}, 144, Hold(2)},
      {"64x192x64", {.tokens = 192, .token_groups = 2, .min_ctas = 2}, 86, Hold(1, 2)},
      {"64x256x64", {.tokens = 256, .token_groups = 2, .min_ctas = 1}, 144, Hold(1)},
      {"128x16x64", {.tokens = 16, .row_groups = 2, .min_ctas = 2}, 44, Hold(1, 2)},
      {"128x32x64", {.tokens = 32, .row_groups = 2, .min_ctas = 2}, 44, Hold(1, 2)},
      {"128x48x64", {.tokens = 48, .row_groups = 2, .min_ctas = 2}, 55, Hold(1, 2)},
      {"128x64x64", {.tokens = 64, .row_groups = 2, .min_ctas = 2}, 67, Hold(1, 2)},
      {"128x96x64", {.tokens = 96, .row_groups = 2, .min_ctas = 2}, 86, Hold(1, 2)},
      {"128x128x64", {.tokens = 128, .row_groups = 2, .min_ctas = 2}, 96, Hold(1, 2)},
      {"128x192x64", {.tokens = 192, .row_groups = 2, .min_ctas = 1}, 134, Hold(1)},
      {"128x256x64", {.tokens = 256, .row_groups = 2, .min_ctas = 1}, 164, Hold(1)},
  };
};

}  // namespace culet::sm90
