// What a large-M kernel does to the sums of its tile before they are stored.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

#include "kernels/sm90/epilogue.h"
#include "kernels/sm90/policy.h"
#include "kernels/sm90/silu.cuh"

namespace culet::sm90 {

/// alpha * sum, in BF16 or F32.
template <OutputType kOutput>
struct PlainEpilogue {
  static constexpr EpilogueKind kKind = EpilogueKind::kPlain;
  static constexpr OutputType kType = kOutput;
  static constexpr bool kStoresSums = kOutput == OutputType::kF32;  ///< from registers, no slabs
};

/// Everything that EpilogueParams says, known at run time; D in any type.
struct GeneralEpilogue {
  static constexpr EpilogueKind kKind = EpilogueKind::kGeneral;
  static constexpr bool kStoresSums = false;
};

/// The same, then silu(gate) * up; and E4M3 with scales.
struct GatedEpilogue {
  static constexpr EpilogueKind kKind = EpilogueKind::kGated;
  static constexpr bool kStoresSums = false;
};
struct GatedQuantEpilogue {
  static constexpr EpilogueKind kKind = EpilogueKind::kGatedQuant;
  static constexpr bool kStoresSums = false;
};

/// Two elements side by side as FP32. Requires: aligned to a pair.
__device__ __forceinline__ float2 LoadPair(const float* from) {
  return *reinterpret_cast<const float2*>(from);
}
__device__ __forceinline__ float2 LoadPair(const __nv_bfloat16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}
__device__ __forceinline__ float2 LoadPair(const __half* from) {
  return __half22float2(*reinterpret_cast<const __half2*>(from));
}
__device__ __forceinline__ float LoadOne(const float* from) { return *from; }
__device__ __forceinline__ float LoadOne(const __nv_bfloat16* from) {
  return __bfloat162float(*from);
}
__device__ __forceinline__ float LoadOne(const __half* from) { return __half2float(*from); }

/// Calls `use` with `data` as a pointer to what it points to.
template <class Use>
__device__ __forceinline__ void AsType(OutputType type, const void* data, Use use) {
  if (type == OutputType::kBf16)
    use(static_cast<const __nv_bfloat16*>(data));
  else if (type == OutputType::kF16)
    use(static_cast<const __half*>(data));
  else
    use(static_cast<const float*>(data));
}

/// The column of B, C and the bias where the eight sums of group `group` begin that follow column
/// `column` of the product, a multiple of 16 where columns are paired.
template <bool kPaired>
__device__ __forceinline__ int FirstOfEight(const EpilogueParams& e, int column, int group) {
  if (!kPaired || e.up_column == 0) return column + group * 8;
  return column / 2 + group / 2 * 8 + group % 2 * e.up_column;
}

/// beta C added to a thread's part of one m64 block: kCount columns from `column` on of rows `row`
/// and row + 8, its sums as wgmma leaves them, four for 8 columns. `row` is the thread's own,
/// `column` the block's. What lies outside m x n is not read, and its sums are not stored.
/// Requires: C aligned to pairs of elements, pointer and rows.
template <int kCount, bool kPaired = false>
__device__ __forceinline__ void AddC(const EpilogueParams& e, float* sum, int row, int column,
                                     int m, int n, int lane) {
  const int first = lane % 4 * 2;
  const int rows[2] = {min(row, m - 1), min(row + 8, m - 1)};
  if (e.c != nullptr) {
    AsType(e.c_type, e.c, [&](auto* c) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const auto* const from = c + rows[h] * e.ldc;
#pragma unroll
        for (int i = 0; i < kCount / 8; ++i) {
          const int j = first + FirstOfEight<kPaired>(e, column, i);
          float2 v = {0.0f, 0.0f};
          if (j + 1 < n)
            v = LoadPair(from + j);
          else if (j < n)
            v.x = LoadOne(from + j);
          sum[i * 4 + h * 2] = fmaf(e.beta, v.x, sum[i * 4 + h * 2]);
          sum[i * 4 + h * 2 + 1] = fmaf(e.beta, v.y, sum[i * 4 + h * 2 + 1]);
        }
      }
    });
  }
}

/// All that EpilogueParams says of such a part.
template <int kCount, bool kPaired = false>
__device__ __forceinline__ void ApplyGeneral(const EpilogueParams& e, float* sum, int row,
                                             int column, int m, int n, int lane) {
  const int first = lane % 4 * 2;
  const int rows[2] = {min(row, m - 1), min(row + 8, m - 1)};
  float x[2] = {e.alpha, e.alpha};
  if (e.scale_a != nullptr) {
#pragma unroll
    for (int i = 0; i < 2; ++i) x[i] *= e.scale_a[std::int64_t{rows[i]} * e.scale_a_step];
  }
  if (e.scale_b != nullptr && e.scale_b_step == 0) {
    const float y = *e.scale_b;
    x[0] *= y, x[1] *= y;
  }
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) sum[i] *= x[i / 2 % 2];
  if (e.scale_b != nullptr && e.scale_b_step != 0) {
#pragma unroll
    for (int i = 0; i < kCount / 8; ++i) {
      const int j = first + FirstOfEight<kPaired>(e, column, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float y = e.scale_b[std::int64_t{min(j + h, n - 1)} * e.scale_b_step];
        sum[i * 4 + h] *= y;
        sum[i * 4 + 2 + h] *= y;
      }
    }
  }
  AddC<kCount, kPaired>(e, sum, row, column, m, n, lane);
  if (e.bias != nullptr) {
    AsType(e.bias_type, e.bias, [&](auto* bias) {
      if (e.bias_row_step != 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) x[i] = LoadOne(bias + std::int64_t{rows[i]} * e.bias_row_step);
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) sum[i] += x[i / 2 % 2];
      } else {
#pragma unroll
        for (int i = 0; i < kCount / 8; ++i) {
          const int j = first + FirstOfEight<kPaired>(e, column, i);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float v = LoadOne(bias + std::int64_t{min(j + h, n - 1)} * e.bias_step);
            sum[i * 4 + h] += v;
            sum[i * 4 + 2 + h] += v;
          }
        }
      }
    });
  }
}

/// The same for row `row` alone of a kernel that quantises, two sums of each 8 columns.
template <int kCount>
__device__ __forceinline__ void ApplyGeneralToRow(const EpilogueParams& e, float* sum, int row,
                                                  int column, int m, int n, int lane) {
  float rows[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i)
    rows[i / 2 * 4 + i % 2] = rows[i / 2 * 4 + 2 + i % 2] = sum[i];
  ApplyGeneral<kCount, true>(e, rows, row, column, m, n, lane);
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) sum[i] = rows[i / 2 * 4 + i % 2];
}

/// Pairs a thread's sums of kCount columns: groups of 8 columns are gate and up in turn, and a
/// thread has the same columns of each. The results lie as sums of kCount / 2 columns do; they may
/// take the place of sums, but of none behind those that they are made of.
template <int kCount>
__device__ __forceinline__ void Gate(const float* sum, float* gated) {
#pragma unroll
  for (int g = 0; g < kCount / 16; ++g)
#pragma unroll
    for (int i = 0; i < 4; ++i) gated[g * 4 + i] = Silu(sum[g * 8 + i]) * sum[g * 8 + 4 + i];
}

}  // namespace culet::sm90
