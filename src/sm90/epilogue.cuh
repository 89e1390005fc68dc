// Moves FP32 accumulators in wgmma layout to 16-bit tiles in swizzled shared memory, for TMA
// stores.
#pragma once

#include <cstdint>

#include "culet/layout/tma_swizzle.h"
#include "sm90/fragment.cuh"
#include "sm90/instructions.cuh"

namespace culet::sm90 {

/// A warp's store buffer: 16 rows of 128 bytes, in the layout that TMA stores.
using Slab16 = TmaTile128<16>;

/// Writes 16 rows x kColumns (at most 64) of a warp's m64 accumulator to a store buffer of 2048
/// bytes at `slab`, aligned to 1024 bytes, with a swizzle of 128 bytes. `d` are the accumulators of
/// these columns, four for 8 columns, in wgmma's order. `pack` rounds two of them (PackBf16,
/// PackF16).
template <int kColumns, class Pack>
__device__ __forceinline__ void StoreSlab16(uint32_t slab, const float* d, int lane, Pack pack) {
  const uint32_t row = (lane & 7) + ((lane >> 3) & 1) * 8;
  const uint32_t chunk = lane >> 4;  // which of the two 8-column matrices
#pragma unroll
  for (int c = 0; c < kColumns / 16; ++c) {
    const uint32_t offset = Slab16::apply<uint32_t>(row, (2 * c + chunk) * 16);
    const float* v = d + c * 8;
    StoreMatrix4(slab + offset, pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]),
                 pack(v[6], v[7]));
  }
}

}  // namespace culet::sm90
