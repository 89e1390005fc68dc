// What a large-M kernel does to the sums of its tile before they are stored.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/config.cuh"
#include "kernels/sm90/product/epilogue.h"
#include "kernels/sm90/product/output.cuh"
#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/product/silu.cuh"
#include "sm90/instructions.cuh"

namespace culet::sm90 {

/// The first column, in B, C and the bias, of 8-column group `group` after column `column` of the
/// product. Requires: column % 16 == 0 if kPaired.
template <bool kPaired>
__device__ __forceinline__ int FirstOfEight(const EpilogueParams& e, int column, int group) {
  if (!kPaired || e.up_column == 0) return column + group * 8;
  return column / 2 + group / 2 * 8 + group % 2 * e.up_column;
}

/// FirstOfEight for C::kByLanes, where a lane owns 8 neighbouring columns, numbered `run`. Its j-th
/// sum is value run % 2 of group run / 2 * 8 + j.
__device__ __forceinline__ int FirstOfRun(const EpilogueParams& e, int column, int run, int lane) {
  const int up = run / 2, of_d = lane % 4 * kLaneColumns + run % 2 * 8;
  return e.up_column == 0 ? column + of_d * 2 + up * 8 : column / 2 + of_d + up * e.up_column;
}
/// Index in the accumulators of sum `j` of `run`, upper row.
__host__ __device__ constexpr int OfRun(int run, int j) { return (run / 2 * 8 + j) * 4 + run % 2; }

/// AddC and the column bias for C::kByLanes.
template <class C>
__device__ __forceinline__ void AddCToRuns(const EpilogueParams& e, float* sum, int row, int column,
                                           int m, int n, int lane) {
  // Calls use(to, at, there) per 8 sums: to(j) is a sum, `at` C's offset, `there` if inside D.
  const auto for_runs = [&](auto use) {
#pragma unroll
    for (int run = 0; run < C::kShareColumns / 32; ++run)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int first = FirstOfRun(e, column, run, lane);
        use([&](int j) -> float& { return sum[OfRun(run, j) + h * 2]; },
            min(row + h * 8, m - 1) * e.ldc + first, first <= n - 8);
      }
  };
  if (e.c_type == OutputType::kF32) {
    for_runs([&](auto to, auto at, bool there) {
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float2 two = LoadTwo(static_cast<const float*>(e.c) + at + j, there);
        to(j) = fmaf(e.beta, two.x, to(j));
        to(j + 1) = fmaf(e.beta, two.y, to(j + 1));
      }
    });
  } else {
    for_runs([&](auto to, auto at, bool there) {
      uint32_t word[4];
      LoadFour(static_cast<const uint16_t*>(e.c) + at, there, word);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float2 two = UnpackOutput(e.c_type, word[j / 2]);
        to(j) = fmaf(e.beta, two.x, to(j));
        to(j + 1) = fmaf(e.beta, two.y, to(j + 1));
      }
    });
  }
}
template <class C>
__device__ __forceinline__ void AddBiasToRuns(const EpilogueParams& e, float* sum, int column,
                                              int n, int lane) {
#pragma unroll
  for (int run = 0; run < C::kShareColumns / 32; ++run) {
    const int first = FirstOfRun(e, column, run, lane);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float v =
          LoadOutput(e.bias, e.bias_type, std::int64_t{min(first + j, n - 1)} * e.bias_step);
      sum[OfRun(run, j)] += v, sum[OfRun(run, j) + 2] += v;
    }
  }
}

/// Adds beta C to a thread's part of one m64 block: rows `row` and row + 8, kShareColumns columns
/// from `column` on, in wgmma's accumulator layout (4 sums per 8 columns). `row` is the thread's,
/// `column` the block's. Elements outside m x n are not read; their sums are never stored.
/// Requires: C's pointer and row pitch aligned to 16 bytes, or to 8 for F32.
template <class C>
__device__ __forceinline__ void AddC(const EpilogueParams& e, float* sum, int row, int column,
                                     int m, int n, int lane) {
  constexpr int kEights = C::kShareColumns / 8;
  if (e.c == nullptr) return;
  if constexpr (C::kByLanes) {
    AddCToRuns<C>(e, sum, row, column, m, n, lane);
    return;
  }
  const int first = lane % 4 * 2;
  const auto row_of = [&](int h) { return min(row + h * 8, m - 1) * e.ldc; };
  const auto add = [&](int i, int h, float2 v) {
    float* const to = sum + i * 4 + h * 2;
    to[0] = fmaf(e.beta, v.x, to[0]);
    to[1] = fmaf(e.beta, v.y, to[1]);
  };
  // Row by row. Gated kernels take both rows of a column together, since column offsets cost
  // registers; with scales that order would spill.
  const auto for_parts = []<int kStep>(std::integral_constant<int, kStep>, auto use) {
    if constexpr (C::kGated && !C::kScaled) {
#pragma unroll
      for (int i = 0; i < kEights; i += kStep)
#pragma unroll
        for (int h = 0; h < 2; ++h) use(h, i);
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int i = 0; i < kEights; i += kStep) use(h, i);
    }
  };
  if (e.c_type == OutputType::kF32) {
    for_parts(std::integral_constant<int, 1>{}, [&](int h, int i) {
      const int j = FirstOfEight<C::kGated>(e, column, i);
      add(i, h, LoadTwo(static_cast<const float*>(e.c) + row_of(h) + j + first, j <= n - 8));
    });
  } else {
    // Each of 4 lanes loads a whole group of 8 columns (16 bytes); then they transpose.
    for_parts(std::integral_constant<int, C::kAsked>{}, [&](int h, int i) {
      uint32_t word[C::kAsked / 4][4];
#pragma unroll
      for (int f = 0; f < C::kAsked / 4; ++f) {
        const int eight = i + f * 4 + lane % 4, j = FirstOfEight<C::kGated>(e, column, eight);
        LoadFour(static_cast<const uint16_t*>(e.c) + row_of(h) + j, eight < kEights && j <= n - 8,
                 word[f]);
      }
#pragma unroll
      for (int f = 0; f < C::kAsked / 4; ++f) {
        TransposeFour(word[f], lane);
#pragma unroll
        for (int g = 0; g < 4; ++g)
          if (i + f * 4 + g < kEights) add(i + f * 4 + g, h, UnpackOutput(e.c_type, word[f][g]));
      }
    });
  }
  if (!C::kGated && n % 8 != 0) {  // the last, partial group of 8 columns
    const int last = n / 8 * 8;
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      const int j = last + first + x % 2;
      if (j >= n) continue;
      const float v = LoadOutput(e.c, e.c_type, row_of(x / 2) + j);
#pragma unroll
      for (int i = 0; i < kEights; ++i)
        if (column + i * 8 == last) sum[i * 4 + x] = fmaf(e.beta, v, sum[i * 4 + x]);
    }
  }
}

/// Prefetches a warpgroup's part of C (kColumns columns from `column`, rows from `row`) into L2
/// while the tile is multiplied.
template <class C>
__device__ __forceinline__ void PrefetchC(const EpilogueParams& e, int row, int column, int m,
                                          int n) {
  constexpr int kLine = 128, kRows = C::kBlocksM * 64;
  const int bytes = BytesOf(e.c_type), end = min(column + C::kColumns, n) * bytes;
#pragma unroll 1
  for (int i = threadIdx.x % 128; i < kRows; i += 128) {
    if (row + i >= m) break;
    const char* const from = static_cast<const char*>(e.c) + (row + i) * e.ldc * bytes;
#pragma unroll 1
    for (int at = column * bytes; at < end; at += kLine) PrefetchToL2(from + at);
  }
}

/// Applies alpha, beta C and the bias to such a part. Scales are applied elsewhere.
template <class C>
__device__ __forceinline__ void ApplyGeneral(const EpilogueParams& e, float* sum, int row,
                                             int column, int m, int n, int lane) {
  static_assert(C::kScaled || C::Policy::kInfo.element_bytes == 2, "no scales of rows or columns");
  constexpr int kEights = C::kShareColumns / 8;
#pragma unroll
  for (int i = 0; i < kEights * 4; ++i) sum[i] *= e.alpha;
  AddC<C>(e, sum, row, column, m, n, lane);
  if (e.bias == nullptr) return;
  if (e.bias_row_step != 0) {
    float x[2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      x[h] =
          LoadOutput(e.bias, e.bias_type, std::int64_t{min(row + h * 8, m - 1)} * e.bias_row_step);
#pragma unroll
    for (int i = 0; i < kEights * 4; ++i) sum[i] += x[i / 2 % 2];
    return;
  }
  if constexpr (C::kByLanes) {
    AddBiasToRuns<C>(e, sum, column, n, lane);
    return;
  }
  // Each lane loads the bias of one column in 32; shuffles distribute it.
  const bool wide = e.bias_type == OutputType::kF32;
  constexpr int kTogether = kEights < 16 ? kEights : 16;
#pragma unroll
  for (int begin = 0; begin < kEights; begin += kTogether) {
    uint32_t of_lane[(kTogether + 3) / 4];
#pragma unroll
    for (int i = 0; i < kTogether; i += 4) {
      const int eight = min(begin + i + lane / 8, kEights - 1);
      const int j = FirstOfEight<C::kGated>(e, column, eight) + lane % 8;
      of_lane[i / 4] = LoadRaw(e.bias, wide, std::int64_t{min(j, n - 1)} * e.bias_step);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (begin + i >= kEights) break;
      if (i % 4 == 0) of_lane[i / 4] = __float_as_uint(FromRaw(e.bias_type, of_lane[i / 4]));
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        const float v =
            __uint_as_float(__shfl_sync(0xFFFFFFFFu, of_lane[i / 4], i % 4 * 8 + lane % 4 * 2 + x));
        float* const to = sum + (begin + i) * 4 + x;
        to[0] += v, to[2] += v;
      }
    }
  }
}

/// ApplyGeneral for row `row` alone of a quantising kernel: 2 sums per 8 columns.
template <class C>
__device__ __forceinline__ void ApplyGeneralToRow(const EpilogueParams& e, float* sum, int row,
                                                  int column, int m, int n, int lane) {
  float rows[C::kColumns / 2];
#pragma unroll
  for (int i = 0; i < C::kColumns / 4; ++i)
    rows[i / 2 * 4 + i % 2] = rows[i / 2 * 4 + 2 + i % 2] = sum[i];
  ApplyGeneral<C>(e, rows, row, column, m, n, lane);
#pragma unroll
  for (int i = 0; i < C::kColumns / 4; ++i) sum[i] = rows[i / 2 * 4 + i % 2];
}

/// Computes silu(gate) * up of a thread's sums. 8-column groups are either gate's or up's
/// (GateGroup), and a thread holds the same columns of both. Writes 4 results, in accumulator
/// layout, for each of kPairs column pairs from kFirst on. Four results of a row share one
/// reciprocal; if it over- or underflows in row h, `right[h]` becomes false and GateAlone must redo
/// the row one by one. Calls use(h, values) per four results of row h.
template <class C, int kFirst, int kPairs, class Use>
__device__ __forceinline__ void GateFours(const float* sum, float* gated, bool (&right)[2],
                                          Use use) {
  const auto two = [&](int group, int h) { return sum + group * 4 + h * 2; };
#pragma unroll
  for (int pair = 0; pair + 1 < kPairs; pair += 2)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int i0 = kFirst + pair, i1 = i0 + 1;
      const float* const gate[] = {two(GateGroup<C>(i0), h), two(GateGroup<C>(i1), h)};
      const float* const up[] = {two(UpGroup<C>(i0), h), two(UpGroup<C>(i1), h)};
      float four[4];
      right[h] &= GateFour({gate[0][0], gate[0][1], gate[1][0], gate[1][1]},
                           {up[0][0], up[0][1], up[1][0], up[1][1]}, four);
#pragma unroll
      for (int i = 0; i < 4; ++i) gated[(pair + i / 2) * 4 + h * 2 + i % 2] = four[i];
      use(h, four);
    }
  if constexpr (kPairs % 2 == 1) {
    constexpr int kLast = kPairs - 1;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      gated[kLast * 4 + i] =
          Silu(sum[GateGroup<C>(kFirst + kLast) * 4 + i]) * sum[UpGroup<C>(kFirst + kLast) * 4 + i];
  }
}
template <class C, int kFirst, int kPairs>
__device__ __forceinline__ void GateAlone(const float* sum, float* gated, const bool (&right)[2]) {
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!right[i / 2])
        gated[pair * 4 + i] =
            Silu(sum[GateGroup<C>(kFirst + pair) * 4 + i]) * sum[UpGroup<C>(kFirst + pair) * 4 + i];
}

/// Gates the first `left` columns of D. Columns past the matrix hold garbage and must not share a
/// reciprocal, or results would not repeat. `gated` may alias `sum`. Kernels that do not promote
/// gate one by one: with extra values beside the accumulators ptxas serialises every wgmma.
template <class C, int kCount>
__device__ __forceinline__ void Gate(const float* sum, int left, float* gated) {
  if constexpr (!C::kPromotes) {
    GateAlone<C, 0, kCount / 16>(sum, gated, {false, false});
    return;
  }
  bool right[2] = {left >= kCount / 2, left >= kCount / 2};
  float values[kCount / 4];
  GateFours<C, 0, kCount / 16>(sum, values, right, [](int, const float(&)[4]) {});
  if (!(right[0] && right[1])) GateAlone<C, 0, kCount / 16>(sum, values, right);
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) gated[i] = values[i];
}

}  // namespace culet::sm90
