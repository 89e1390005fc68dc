// The orders in which Hopper's TMA fills shared memory and wgmma and ldmatrix read it, as layouts,
// with the proof that they do what they are for.
#pragma once

#include <cstdint>

#include "culet/layout/bank_conflict.h"
#include "culet/layout/host_device.h"
#include "culet/layout/smem_layout.h"
#include "culet/layout/swizzle.h"

namespace culet {

/// The swizzles of CU_TENSOR_MAP_SWIZZLE_128B, _64B and _32B, on byte offsets. All three change the
/// place of a 16-byte chunk (bits 4 and up) by the number of its 128-byte line (bits 7 and up):
///
///     128-byte rows: chunk ^= row % 8         64-byte rows: chunk ^= row / 2 % 4
///      32-byte rows: chunk ^= row / 4 % 2
///
/// The hardware reads the bits of the shared-memory address, so a tile starts at a multiple of 8
/// lines (1024 bytes; 512 and 256 for the narrower two).
using TmaSwizzle128 = Swizzle<3, 4, 3>;
using TmaSwizzle64 = Swizzle<2, 4, 3>;
using TmaSwizzle32 = Swizzle<1, 4, 3>;

/// A TMA box of `Rows` rows as wide as the swizzle, in bytes.
template <int Rows>
using TmaTile128 = SmemLayoutV2<Rows, 128, 8, 128, TmaSwizzle128>;
template <int Rows>
using TmaTile64 = SmemLayoutV2<Rows, 64, 8, 64, TmaSwizzle64>;
template <int Rows>
using TmaTile32 = SmemLayoutV2<Rows, 32, 8, 32, TmaSwizzle32>;

/// TmaTile128's offset of byte `column` of `row`, for any number of rows: 8 of them are the block
/// that the swizzle stays in.
CULET_HOST_DEVICE constexpr std::uint32_t TmaOffset128(std::uint32_t row,
                                                       std::uint32_t column) noexcept {
  return TmaSwizzle128::apply(row * 128 + column);
}

// No byte is lost or doubled.
static_assert(IsBijective<TmaTile128<32>>());
static_assert(IsBijective<TmaTile64<32>>());
static_assert(IsBijective<TmaTile32<32>>());

// Without a swizzle, 8 rows of one column of chunks hit the same banks 8, 4 and 2 times over ...
static_assert(ColumnConflictDegree<SmemLayoutV2<32, 128>>(1) == 8);
static_assert(ColumnConflictDegree<SmemLayoutV2<32, 64>>(1) == 4);
static_assert(ColumnConflictDegree<SmemLayoutV2<32, 32>>(1) == 2);

// ... and with it, never.
static_assert(ColumnConflictDegree<TmaTile128<32>>(1) == 1);
static_assert(ColumnConflictDegree<TmaTile64<32>>(1) == 1);
static_assert(ColumnConflictDegree<TmaTile32<32>>(1) == 1);

// The same swizzle counted in 2-byte elements: 16-byte chunks hold 8 of them.
static_assert(ColumnConflictDegree<SmemLayoutV2<32, 64, 8, 64, Swizzle<3, 3, 3>>>(2) == 1);

}  // namespace culet
