// The epilogue of tiles whose rows and columns lie by classes (RowClasses): scales, C and the bias
// are read, and D is written, element by element.
#pragma once

#include <cstdint>

#include "kernels/sm90/block_config.cuh"
#include "kernels/sm90/block_tiles.cuh"
#include "kernels/sm90/output.cuh"

namespace culet::sm90 {

/// What becomes of a sum at (row, column) of D. `scale_a` is the row's.
__device__ __forceinline__ float Finished(const EpilogueParams& e, float sum, int row, int column,
                                          float scale_a) {
  float v = sum * e.alpha * scale_a;
  if (e.scale_b != nullptr) v *= e.scale_b[static_cast<int64_t>(column) * e.scale_b_step];
  if (e.c != nullptr) v += e.beta * LoadOutput(e.c, e.c_type, row * e.ldc + column);
  if (e.bias != nullptr)
    v += LoadOutput(
        e.bias, e.bias_type,
        static_cast<int64_t>(row) * e.bias_row_step + static_cast<int64_t>(column) * e.bias_step);
  return v;
}

/// Stores C::kShareColumns columns, from `tile_column` of the tile on, of 16 rows from `tile_row`
/// on; `sums` are this thread's of two rows. From registers where a thread has few; else through
/// the warp's own shared memory, from which a lane takes what lies side by side in D, so that one
/// loop is compiled instead of each element's way.
template <class C>
__device__ __forceinline__ void StoreClasses(const BlockParams& p, const float* sums, float* memory,
                                             const Tile& place, int tile_row, int tile_column,
                                             int lane) {
  const EpilogueParams& e = p.epilogue;
  constexpr int kColumns = C::kShareColumns;
  const auto row_of = [&](int i) { return place.row + p.a_classes.RowOf(tile_row + i, C::kTileM); };
  const auto store = [&](int row, int column, float sum) {
    if (row >= p.m || column >= p.n) return;
    const float scale_a =
        e.scale_a == nullptr ? 1.0f : e.scale_a[static_cast<int64_t>(row) * e.scale_a_step];
    StoreOutput(p.d, e.d_type, row * p.ldd + column, Finished(e, sum, row, column, scale_a));
  };
  if constexpr (C::kSplit > 1) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const int column = tile_column + i / 4 * 8 + lane % 4 * 2 + i % 2;
      store(row_of(lane / 4 + i / 2 % 2 * 8), place.column + p.b_classes.RowOf(column, C::kTileN),
            sums[i]);
    }
    return;
  }
  constexpr int kLine = kColumns + 8;  // floats; eight more, so that four rows meet all banks
  const int of_class = C::kTileN / p.b_classes.count;
  const bool packs =
      e.d_type != OutputType::kF32 && p.ldd % 4 == 0 && reinterpret_cast<uintptr_t>(p.d) % 8 == 0;
  const int first = lane * 4, column = place.column + first;
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // eight rows
    __syncwarp();
#pragma unroll
    for (int n8 = 0; n8 < kColumns / 8; ++n8)
      *reinterpret_cast<float2*>(memory + lane / 4 * kLine + n8 * 8 + lane % 4 * 2) =
          make_float2(sums[n8 * 4 + 2 * half], sums[n8 * 4 + 2 * half + 1]);
    __syncwarp();
    if constexpr (kColumns < C::kTileN) {  // the other columns are another warpgroup's
#pragma unroll 1
      for (int i = lane; i < 8 * kColumns; i += 32)
        store(row_of(half * 8 + i / kColumns),
              place.column + p.b_classes.RowOf(tile_column + i % kColumns, C::kTileN),
              memory[i / kColumns * kLine + i % kColumns]);
      continue;
    }
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const int row = row_of(half * 8 + i);
      float four[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        four[j] = memory[i * kLine + (first + j) % p.b_classes.count * of_class +
                         (first + j) / p.b_classes.count];
      if (row < p.m && packs && column + 4 <= p.n) {
        const float scale_a =
            e.scale_a == nullptr ? 1.0f : e.scale_a[static_cast<int64_t>(row) * e.scale_a_step];
#pragma unroll
        for (int j = 0; j < 4; ++j) four[j] = Finished(e, four[j], row, column + j, scale_a);
        *reinterpret_cast<uint2*>(static_cast<uint16_t*>(p.d) + row * p.ldd + column) = make_uint2(
            PackOutput(e.d_type, four[0], four[1]), PackOutput(e.d_type, four[2], four[3]));
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) store(row, column + j, four[j]);
      }
    }
  }
}

}  // namespace culet::sm90
