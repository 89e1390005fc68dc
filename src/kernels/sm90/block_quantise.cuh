// The store of a large-M kernel whose D is E4M3 with an FP32 scale for 128 columns of a row.
#pragma once

#include <cstdint>

#include "kernels/sm90/block_config.cuh"
#include "kernels/sm90/block_epilogue.cuh"
#include "kernels/sm90/row_scale.cuh"
#include "kernels/sm90/silu.cuh"
#include "sm90/epilogue.cuh"

namespace culet::sm90 {

/// The largest magnitudes of a thread's values in its two rows, of which kCount columns lie as sums
/// do, and of `largest`.
template <int kCount>
__device__ __forceinline__ void TakeLargest(const float* values, float (&largest)[2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    largest[i / 2 % 2] = LargerMagnitude(largest[i / 2 % 2], values[i]);
}

/// Zeros the values that lie beyond the first `left` of kCount columns: they are anything.
template <int kCount>
__device__ __forceinline__ void ClearBeyond(float* values, int left, int lane) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= left) values[i] = 0.0f;
}

/// Pairs a thread's sums of kCount columns: kCount / 2 of D, of which `left` are there, and whose
/// magnitudes `largest` takes on. Inverses are shared within a row alone, by columns of D, and
/// where they can't be, each row is told for itself: what lies beyond the matrix differs from
/// launch to launch, and would be seen in D's last bits.
template <int kCount>
__device__ __forceinline__ void GateLargest(const float* sum, int left, int lane, float* gated,
                                            float (&largest)[2]) {
  const float before[2] = {largest[0], largest[1]};
  bool right[2] = {left >= kCount / 2, left >= kCount / 2};
  static_assert(kCount % 32 == 0);
  GateFours<kCount>(sum, gated, right, [&](int h, const float(&four)[4]) {
#pragma unroll
    for (const float value : four) largest[h] = LargerMagnitude(largest[h], value);
  });
  if (right[0] && right[1]) return;
  GateAlone<kCount>(sum, gated, right);
  ClearBeyond<kCount / 2>(gated, left, lane);
  largest[0] = before[0], largest[1] = before[1];
  TakeLargest<kCount / 2>(gated, largest);
}

/// Keeps 32 values of each lane in the warp's two slabs, `apart` bytes apart: a run's first tile.
__device__ __forceinline__ void KeepValues(const float* values, uint8_t* slabs, int apart,
                                           int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    *reinterpret_cast<float4*>(slabs + i / 4 * apart + (i % 4 * 32 + lane) * 16) =
        make_float4(values[i * 4], values[i * 4 + 1], values[i * 4 + 2], values[i * 4 + 3]);
}
/// Those of one of the slabs.
__device__ __forceinline__ void RecallValues(float (&values)[16], const uint8_t* slab, int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 v = *reinterpret_cast<const float4*>(slab + (i * 32 + lane) * 16);
    values[i * 4] = v.x, values[i * 4 + 1] = v.y, values[i * 4 + 2] = v.z, values[i * 4 + 3] = v.w;
  }
}

/// The scales of a thread's two rows.
struct TwoScales {
  float inverse[2];
  float lift[2];  ///< values are multiplied by it first
  bool lifts;     ///< one of them is not 1
};

/// Makes them of the largest magnitudes among a thread's values, and writes them: of the row of D
/// `row` + lane / 4 and of the one eight below, for the block of 128 columns that `column` is in.
/// `exchange(largest)` makes of the magnitudes of this warp's columns those of 128 columns;
/// `writes`: the scales are this warp's to write.
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

/// Divides a thread's values of kCount columns, which lie as sums do, by their scales.
template <int kCount>
__device__ __forceinline__ void Quantise(float* values, const TwoScales& scales) {
  if (scales.lifts) [[unlikely]] {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) values[i] *= scales.lift[i / 2 % 2];
  }
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) values[i] *= scales.inverse[i / 2 % 2];
}

/// Rounds a warp's kCount columns of quantised values into `slab`, 16 rows of 128 bytes as TMA
/// stores them, from byte `first` of each row on.
template <int kCount>
__device__ __forceinline__ void FillSlabE4m3(const float* values, uint8_t* slab, int first,
                                             int lane) {
  // A row's chunks of 16 bytes change places by the row's number: the next chunk's place is an
  // exclusive or away, and that of a row eight below 1,024 bytes.
  const uint32_t begin = Slab16::apply<uint32_t>(lane / 4, first + lane % 4 * 2);
#pragma unroll
  for (int g = 0; g < kCount / 8; ++g)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* const v = &values[g * 4 + h * 2];
      *reinterpret_cast<uint16_t*>(slab + (begin ^ (g / 2 * 16)) + g % 2 * 8 + h * 1024) =
          PackE4m3(v[0], v[1]);
    }
}

}  // namespace culet::sm90
