// What a large-M kernel does to the sums of its tile before they are stored.
#pragma once

#include <cstdint>

#include "kernels/sm90/block_config.cuh"
#include "kernels/sm90/epilogue.h"
#include "kernels/sm90/output.cuh"
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

/// The column of B, C and the bias where the eight sums of group `group` begin that follow column
/// `column` of the product, a multiple of 16 where columns are paired.
template <bool kPaired>
__device__ __forceinline__ int FirstOfEight(const EpilogueParams& e, int column, int group) {
  if (!kPaired || e.up_column == 0) return column + group * 8;
  return column / 2 + group / 2 * 8 + group % 2 * e.up_column;
}

/// The same where B comes by lanes: of the eight sums `run` of a lane, number j of which belongs to
/// group run / 2 * 8 + j and is the first or second there, by the run's number.
__device__ __forceinline__ int FirstOfRun(const EpilogueParams& e, int column, int run, int lane) {
  const int up = run / 2, of_d = lane % 4 * kLaneColumns + run % 2 * 8;
  return e.up_column == 0 ? column + of_d * 2 + up * 8 : column / 2 + of_d + up * e.up_column;
}
/// Where its sum `j` of the upper row is.
__host__ __device__ constexpr int OfRun(int run, int j) { return (run / 2 * 8 + j) * 4 + run % 2; }

/// AddC, and the bias of columns, where B comes by lanes.
template <class C>
__device__ __forceinline__ void AddCToRuns(const EpilogueParams& e, float* sum, int row, int column,
                                           int m, int n, int lane) {
  // `use(to, at, there)` for eight sums, which lie as OfRun says from `to` on, and C's element.
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

/// beta C added to a thread's part of one m64 block: kShareColumns columns from `column` on of rows
/// `row` and row + 8, its sums as wgmma leaves them, four for 8 columns. `row` is the thread's own,
/// `column` the block's. What lies outside m x n is not read, and its sums are not stored.
/// Requires: C, pointer and rows, aligned to 16 bytes; of F32 to 8.
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
  // One row behind the other; where columns are paired, whose places take registers, side by side,
  // but for products with scales, which spill so.
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
    // Each of four lanes asks for all of another eight, and then they exchange.
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
  if (!C::kGated && n % 8 != 0) {  // the eight that C ends in
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

/// Asks for a warpgroup's part of C, kColumns columns from `column` on of its rows from `row` on,
/// while the tile is multiplied: it then comes from L2. PTX ISA 9.7.9 prefetch.
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
    for (int at = column * bytes; at < end; at += kLine)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from + at)));
  }
}

/// All that EpilogueParams says of such a part, but for scales, which other kernels have.
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
  // A lane asks for one of each 32 columns, and the lanes hand each other what they add.
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

/// The same for row `row` alone of a kernel that quantises, two sums of each 8 columns.
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

/// Pairs a thread's sums: some groups of 8 columns are gate's and others up's (GateGroup), and a
/// thread has the same columns of each. Of kPairs pairs of its columns of D from kFirst on: four
/// results for each pair, as sums lie. Fours of a row share an inverse; `right[h]`
/// becomes false where those of row h are to be made anew, one by one (GateAlone). `use(h, values)`
/// for each four of one of the two rows.
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

/// The same, of which the first `left` columns of D are there: what lies beyond them differs from
/// launch to launch, and shares no inverse. The results may take the place of sums. Where sums are
/// the tensor core's own, one by one: with values beside them ptxas serialises every wgmma.
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
