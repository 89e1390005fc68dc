// The store of a large-M kernel whose D is E4M3 with an FP32 scale for 128 columns of a row.
#pragma once

#include <cstdint>

#include "kernels/sm90/block_config.cuh"
#include "kernels/sm90/block_epilogue.cuh"
#include "sm90/epilogue.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// Quantises and stores a warp's part of a tile: `values` are those of D, 16 rows of each m64 block
/// from row `row` and column `column` of D on, rows from `tile_row` on in the tile. They pass
/// through the warp's own `slab`. Where two warpgroups share a row's scale, the row's largest
/// magnitude of this one goes to `largest`, by rows of the tile, and the other's comes to `other`.
template <class C>
__device__ __forceinline__ void StoreQuantised(const BlockParams& p,
                                               const float (&values)[C::kBlocksM][C::kColumns / 2],
                                               uint8_t* slab, uint32_t* largest,
                                               const uint32_t* other, int tile_row, int row,
                                               int column, int lane) {
  const int n = p.n / 2, left = n - column;
  uint32_t most[C::kBlocksM][2];
#pragma unroll
  for (int m = 0; m < C::kBlocksM; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[m][h] = LargestOfRow<C::kColumnsOfD>(values[m], h, left, lane);
      if (C::kWarpgroupsN > 1 && lane % 4 == 0)
        largest[tile_row + m * 64 + h * 8 + lane / 4] = most[m][h];
    }
  if constexpr (C::kWarpgroupsN > 1) NamedSync(1, 128 * C::kWarpgroups);
#pragma unroll
  for (int m = 0; m < C::kBlocksM; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int line = h * 8 + lane / 4, to_row = row + m * 64 + line;
      if constexpr (C::kWarpgroupsN > 1)
        most[m][h] = max(most[m][h], other[tile_row + m * 64 + line]);
      const float scale = ScaleOfLargest(most[m][h]);
      if (lane % 4 == 0 && column % 128 == 0 && to_row < p.m && left > 0)
        p.epilogue.d_scale[std::int64_t{to_row} * p.epilogue.d_scale_row +
                           std::int64_t{column / 128} * p.epilogue.d_scale_block] = scale;
#pragma unroll
      for (int g = 0; g < C::kColumnsOfD / 8; ++g) {
        const float* const v = &values[m][g * 4 + h * 2];
        const uint32_t at = Slab16::apply(line, g * 8 + lane % 4 * 2);
        *reinterpret_cast<uint16_t*>(slab + at) = PackE4m3(v[0], v[1], scale);
      }
    }
    __syncwarp();
    constexpr int kChunks = C::kColumnsOfD / 16;  // of a row
#pragma unroll
    for (int i = lane; i < 16 * kChunks; i += 32) {
      const int line = i / kChunks, at = i % kChunks * 16, to_row = row + m * 64 + line;
      const uint8_t* const from = slab + Slab16::apply(line, at);
      uint8_t* const d = static_cast<uint8_t*>(p.out) + to_row * p.ldd + column + at;
      if (to_row >= p.m) continue;
      if (at + 16 <= left) {
        *reinterpret_cast<uint4*>(d) = *reinterpret_cast<const uint4*>(from);
      } else {
        for (int e = 0; e < left - at; ++e) d[e] = from[e];
      }
    }
    __syncwarp();  // before the next block's values
  }
}

}  // namespace culet::sm90
