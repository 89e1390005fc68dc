// Rows of keys and values in shared memory.
#pragma once

#include <cstdint>

#include "culet/layout/host_device.h"

namespace culet::cuda_ops {

/// Rows of kBytes side by side, whose pieces of 16 bytes are turned so that the same piece of eight
/// neighbouring rows lies in eight different banks, as matrices of ldmatrix want it. Turned, not
/// padded: to rows an odd number of 16 bytes apart copies of two pieces no longer come to one
/// sector of 32 bytes, and a copy of long rows took 5 to 8 % longer (H200). Rows of 128, 64 and 32
/// bytes are in the order of TmaSwizzle128, 64 and 32 (culet/layout/). The first begins at a multiple
/// of kAlign bytes.
template <int kBytes>
struct SharedRows {
  static_assert(kBytes % 32 == 0);
  static constexpr int kRow = kBytes;
  // The largest power of two up to 128 in kBytes. Rows that lie in all banks together: 1, 2 or 4.
  static constexpr int kAlign = (kBytes & -kBytes) < 128 ? (kBytes & -kBytes) : 128;
  static constexpr int kTogether = 128 / kAlign, kTurned = kAlign - 16;

  /// What the bits of pieces in row `row` are turned by.
  CULET_HOST_DEVICE static constexpr int Turn(int row) { return row / kTogether * 16 & kTurned; }

  /// Where piece `piece` of row `row` begins, in bytes.
  CULET_HOST_DEVICE static constexpr int Offset(int row, int piece) {
    return row * kRow + (piece * 16 ^ Turn(row));
  }

  // From one piece to another, of offsets and of addresses; by constants it takes two instructions,
  // one or none.

  /// The piece `bytes` behind that of `at` in its row. Requires: what `at` had of its row, before
  /// it was turned, and `bytes` have no bit in common.
  template <class At>
  CULET_HOST_DEVICE static constexpr At Behind(At at, int bytes) {
    return (at ^ static_cast<At>(bytes & kTurned)) + static_cast<At>(bytes & ~kTurned);
  }

  /// The same piece, `rows` rows below. Requires: the row of `at` and `rows` have no bit in common.
  template <class At>
  CULET_HOST_DEVICE static constexpr At Below(At at, int rows) {
    return (at ^ static_cast<At>(Turn(rows))) + static_cast<At>(rows * kRow);
  }
};

}  // namespace culet::cuda_ops
