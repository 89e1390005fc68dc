// Stores D of a large-M kernel as E4M3 codes with one FP32 scale per 128 columns of a row.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/config.cuh"
#include "kernels/sm90/block/epilogue.cuh"
#include "kernels/sm90/product/output.cuh"
#include "kernels/sm90/product/row_scale.cuh"
#include "kernels/sm90/product/silu.cuh"
#include "sm90/epilogue.cuh"

namespace culet::sm90 {

/// Gates kPairs pairs of a thread's columns of D, from kFirst on. Values are in accumulator layout,
/// zero past the first `left` columns; `largest` is raised to their magnitudes. Reciprocals are
/// shared only within a row and, on failure, redone per row: garbage past the matrix differs
/// between launches and would change D's last bits.
template <class C, int kFirst, int kPairs>
__device__ __forceinline__ void GateLargest(const float* sum, int left, int lane, float* gated,
                                            float (&largest)[2]) {
  static_assert(kPairs % 2 == 0);
  // With kByLanes a thread's pairs are spread over all of its warpgroup's columns.
  constexpr int kEnd = C::kByLanes ? kLaneBox / 2 : (kFirst + kPairs) * 8;
  const float before[2] = {largest[0], largest[1]};
  bool right[2] = {left >= kEnd, left >= kEnd};
  GateFours<C, kFirst, kPairs>(sum, gated, right, [&](int h, const float(&four)[4]) {
#pragma unroll
    for (const float value : four) largest[h] = LargerMagnitude(largest[h], value);
  });
  if (right[0] && right[1]) return;
  GateAlone<C, kFirst, kPairs>(sum, gated, right);
  largest[0] = before[0], largest[1] = before[1];
#pragma unroll
  for (int i = 0; i < kPairs * 4; ++i) {
    if (ColumnOfValue<C>(kFirst * 4 + i, lane) >= left) gated[i] = 0.0f;  // garbage
    largest[i / 2 % 2] = LargerMagnitude(largest[i / 2 % 2], gated[i]);
  }
}

/// Keeps 32 values per lane of a run's first tile in the warp's two slabs, `apart` bytes apart.
__device__ __forceinline__ void KeepValues(const float* values, uint8_t* slabs, int apart,
                                           int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    *reinterpret_cast<float4*>(slabs + i / 4 * apart + (i % 4 * 32 + lane) * 16) =
        make_float4(values[i * 4], values[i * 4 + 1], values[i * 4 + 2], values[i * 4 + 3]);
}
__device__ __forceinline__ void RecallValues(float (&values)[32], const uint8_t* slabs, int apart,
                                             int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float4 v =
        *reinterpret_cast<const float4*>(slabs + i / 4 * apart + (i % 4 * 32 + lane) * 16);
    values[i * 4] = v.x, values[i * 4 + 1] = v.y, values[i * 4 + 2] = v.z, values[i * 4 + 3] = v.w;
  }
}

/// The scales of a thread's two rows.
struct TwoScales {
  float inverse[2];
  float lift[2];  ///< values are multiplied by it first
  bool lifts;     ///< one of them is not 1
};

/// Computes and writes the scales of D's rows `row` + lane / 4 and 8 below it, for the block of 128
/// columns that holds `column`, from the largest magnitudes among a thread's values.
/// `exchange(largest)` extends them from this warp's columns to all 128. `writes`: this warp writes
/// the scales.
template <class Exchange>
__device__ __forceinline__ TwoScales TakeScales(const BlockParams& p, float (&largest)[2], int row,
                                                int column, int lane, bool writes,
                                                Exchange exchange) {
#pragma unroll
  for (int h = 0; h < 2; ++h) largest[h] = LargestOfLanes<1, 2>(largest[h]);
  exchange(largest);
  RowScale scales[2] = {ScaleOfNormal(largest[0]), ScaleOfNormal(largest[1])};
  TwoScales two = {.lift = {1.0f, 1.0f}, .lifts = fminf(largest[0], largest[1]) < kLiftsBelow};
  if (two.lifts) [[unlikely]] {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      bool of_row;
      scales[h] = ScaleOfLargest(largest[h], of_row);
      if (of_row) two.lift[h] = 0x1p100f;
    }
  }
  two.inverse[0] = scales[0].inverse, two.inverse[1] = scales[1].inverse;
  const int to_row = row + lane / 4;
  float* const to = p.epilogue.d_scale + std::int64_t{to_row} * p.epilogue.d_scale_row +
                    std::int64_t{column / 128} * p.epilogue.d_scale_block;
  if (writes && lane % 4 == 0 && to_row < p.m) *to = scales[0].scale;
  if (writes && lane % 4 == 0 && to_row + 8 < p.m)
    to[std::int64_t{8} * p.epilogue.d_scale_row] = scales[1].scale;
  return two;
}

/// Divides a thread's values of kCount columns, in accumulator layout, by their scales.
template <int kCount>
__device__ __forceinline__ void Quantise(float* values, const TwoScales& scales) {
  if (scales.lifts) [[unlikely]] {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) values[i] *= scales.lift[i / 2 % 2];
  }
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) values[i] *= scales.inverse[i / 2 % 2];
}

/// Stores up to 16 codes of D's row `row` from `column` on; D ends at a multiple of 8.
__device__ __forceinline__ void StoreSixteen(const BlockParams& p, uint4 codes, int row,
                                             int column) {
  const int n = p.n / 2;
  uint8_t* const to = static_cast<uint8_t*>(p.d) + row * p.ldd + column;
  if (row >= p.m) return;
  if (column + 16 <= n)
    *reinterpret_cast<uint4*>(to) = codes;
  else if (column < n)
    *reinterpret_cast<uint2*>(to) = make_uint2(codes.x, codes.y);
}

/// Four codes, the first in the lowest byte.
__device__ __forceinline__ uint32_t PackFour(float a, float b, float c, float d) {
  return PackE4m3(a, b) | uint32_t{PackE4m3(c, d)} << 16;
}

/// Exchanges and stores the codes of four blocks of 16 columns. `two(i, eight)` returns this lane's
/// two values in 8-column group `eight` (0 or 1) of block i. Lane q of 4 stores block q, at row
/// `row` from column `column` on.
template <class Two>
__device__ __forceinline__ void StoreBlocks(const BlockParams& p, int row, int column, int lane,
                                            Two two) {
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float *const first = two(i, 0), *const next = two(i, 1);
    word[i] = PackFour(first[0], first[1], next[0], next[1]);
  }
  TransposeFour(word, lane);
  // A word's lower half belongs to the first 8 columns, its upper half to the next.
  StoreSixteen(p,
               {__byte_perm(word[0], word[1], 0x5410), __byte_perm(word[2], word[3], 0x5410),
                __byte_perm(word[0], word[1], 0x7632), __byte_perm(word[2], word[3], 0x7632)},
               row, column);
}

/// Quantises a thread's values of kCount columns of D, `column` and on, in rows `row` + lane / 4
/// and eight below, and stores their codes.
template <class C, int kCount>
__device__ __forceinline__ void StoreCodes(const BlockParams& p, float* values,
                                           const TwoScales& scales, int row, int column, int lane) {
  Quantise<kCount>(values, scales);
  row += lane / 4;
  const int lane_column = column + lane % 4 * 16;
  if constexpr (C::kByLanes) {
    static_assert(kCount == kLaneBox / 2);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto four = [&](int e, int i) {
        const float* const v = values + i * 4 + h * 2 + e;
        return PackFour(v[0], v[4], v[8], v[12]);
      };
      StoreSixteen(p, {four(0, 0), four(0, 4), four(1, 0), four(1, 4)}, row + h * 8, lane_column);
    }
  } else if constexpr (kCount == 32) {  // two blocks of either row
    StoreBlocks(p, row + lane % 4 / 2 * 8, column + lane % 2 * 16, lane,
                [&](int i, int eight) { return values + (i % 2 * 2 + eight) * 4 + i / 2 * 2; });
  } else {
#pragma unroll
    for (int begin = 0; begin < kCount; begin += 64)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        StoreBlocks(p, row + h * 8, lane_column + begin, lane, [&](int i, int eight) {
          return values + begin / 2 + (i * 2 + eight) * 4 + h * 2;
        });
  }
}

}  // namespace culet::sm90
