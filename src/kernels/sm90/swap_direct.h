// The instances of formats whose k-blocks the tensor core sums itself. Without products apart from
// the sums and without scales they need few registers, so that shared memory alone, the ring,
// decides how many CTAs a multiprocessor holds.
#pragma once

#include "kernels/sm90/swap.h"

namespace culet::sm90 {

/// 64 rows of weights a CTA; then 128, which halve the reads of the activations.
template <int kElementBytes>
struct SwapDirectList {
  static constexpr bool kTwo = kElementBytes == 2;
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, kTwo ? 46 : 48, Hold(2, 3, 4)},
      {{.tokens = 8, .min_ctas = 4, .stage_blocks = 2}, kTwo ? 48 : 46, Hold(2, 3)},
      {{.tokens = 16, .min_ctas = 4}, 44, Hold(2, 3, 4)},
      {{.tokens = 16, .min_ctas = 4, .stage_blocks = 2}, kTwo ? 48 : 44, Hold(2, 3)},
      {{.tokens = 32, .min_ctas = 4}, 44, Hold(2, 3, 4)},
      {{.tokens = 32, .min_ctas = 3, .stage_blocks = 2}, 44, Hold(1, 2, 3)},
      {{.tokens = 48, .min_ctas = 4}, 55, Hold(2, 3)},
      {{.tokens = 64, .min_ctas = 4}, 67, Hold(2, 3, 4)},
      {{.tokens = 64, .min_ctas = 2, .stage_blocks = 2}, 72, Hold(1, 2)},
      {{.tokens = 96, .min_ctas = 2}, 105, Hold(2)},
      {{.tokens = 128, .min_ctas = 2}, 144, Hold(2)},
      {{.tokens = 192, .token_groups = 2, .min_ctas = 2}, 86, Hold(1, 2)},
      {{.tokens = 256, .token_groups = 2, .min_ctas = 1}, 144, Hold(1)},
      {{.tokens = 16, .row_groups = 2, .min_ctas = 2}, 44, Hold(1, 2)},
      {{.tokens = 32, .row_groups = 2, .min_ctas = 2}, 44, Hold(1, 2)},
      {{.tokens = 48, .row_groups = 2, .min_ctas = 2}, 55, Hold(1, 2)},
      {{.tokens = 64, .row_groups = 2, .min_ctas = 2}, 67, Hold(1, 2)},
      {{.tokens = 96, .row_groups = 2, .min_ctas = 2}, 86, Hold(1, 2)},
      {{.tokens = 128, .row_groups = 2, .min_ctas = 2}, 96, Hold(1, 2)},
      {{.tokens = 192, .row_groups = 2, .min_ctas = 1}, kTwo ? 134 : 138, Hold(1)},
      {{.tokens = 256, .row_groups = 2, .min_ctas = 1}, kTwo ? 167 : 164, Hold(1)},
  };
};

}  // namespace culet::sm90
