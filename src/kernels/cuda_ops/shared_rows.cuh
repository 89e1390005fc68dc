// Rows of keys and values in shared memory.
#pragma once

#include <cstdint>

#include "culet/layout/host_device.h"

namespace culet::cuda_ops {

/// Contiguous rows of kBytes whose 16-byte pieces are swizzled: the same piece of eight
/// neighbouring rows lies in eight different banks, as ldmatrix needs. Swizzled, not padded: with
/// rows an odd number of 16 bytes apart two pieces no longer share a 32-byte sector, and copies of
/// long rows took 5 to 8 % longer (H200). Rows of 128, 64 and 32 bytes are in the order of
/// TmaSwizzle128, 64 and 32 (culet/layout/). The first begins at a multiple of kAlign bytes.
template <int kBytes>
struct SharedRows {
  static_assert(kBytes % 32 == 0);
  static constexpr int kRow = kBytes;
  // The largest power of two up to 128 in kBytes. Rows that lie in all banks together: 1, 2 or 4.
  static constexpr int kAlign = (kBytes & -kBytes) < 128 ? (kBytes & -kBytes) : 128;
  static constexpr int kTogether = 128 / kAlign, kTurned = kAlign - 16;

  /// The swizzle of row `row`, which is XORed with a piece's bits.
  CULET_HOST_DEVICE static constexpr int Turn(int row) { return row / kTogether * 16 & kTurned; }

  /// Where piece `piece` of row `row` begins, in bytes.
  CULET_HOST_DEVICE static constexpr int Offset(int row, int piece) {
    return row * kRow + (piece * 16 ^ Turn(row));
  }

  // From one piece to another, of offsets and of addresses; by constants it takes two instructions,
  // one or none.

  /// The piece `bytes` after that of `at` in its row. Requires: the unswizzled offset of `at` in
  /// its row and `bytes` have no bit in common.
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
