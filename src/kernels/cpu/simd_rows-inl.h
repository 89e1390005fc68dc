// Products with few rows and N-major weights (columns of B contiguous): lanes run along n, a weight
// is read once and becomes FP32 in a register, where it meets all rows of its tile. The sums of a
// strip stay in the first caches while K passes by.
#if defined(CULET_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_ROWS_INL_H_
#undef CULET_SIMD_ROWS_INL_H_
#else
#define CULET_SIMD_ROWS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/simd_skinny-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// Columns that a tile takes: four vectors of any decoder.
inline constexpr std::size_t kRowsVectors = 4;
inline constexpr std::size_t kRowsColumns = kRowsVectors * kLanes;

// sums[r][...] += factors[r] * (a's row r times kRowsColumns columns of b) over `depth` steps of k.
// The sums lie in the decoder's order. `ahead`: bytes to the rows that are asked of memory.
template <class Decoder, int kRows>
HWY_NOINLINE void RowsTile(const float* HWY_RESTRICT a, std::size_t a_stride,
                           const typename Decoder::T* HWY_RESTRICT b, std::int64_t ld,
                           std::size_t depth, std::int64_t ahead, const float* HWY_RESTRICT factors,
                           float* HWY_RESTRICT sums) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kVectors = Decoder::kVectors;
  const F32 d;
  VF32 accumulators[kRows][kRowsVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (std::size_t v = 0; v < kRowsVectors; ++v) accumulators[r][v] = hn::Zero(d);
  }
  for (std::size_t i = 0; i < depth; ++i) {
    const char* const next = reinterpret_cast<const char*>(b) + ahead;
    HWY_UNROLL(4)
    for (std::size_t at = 0; at < kRowsColumns * sizeof(*b); at += kLine) {
      __builtin_prefetch(next + at, 0, 2);
    }
    VF32 w[kRowsVectors];
    HWY_UNROLL(4)
    for (std::size_t g = 0; g < kRowsVectors / kVectors; ++g) {
      const typename Decoder::Raw raw = Decoder::Load(d, b + g * kVectors * kLanes);
      ForEachVector<static_cast<int>(kVectors)>([&](auto v) HWY_ATTR {
        w[g * kVectors + v] = GetVector<Decoder, kMissesNan<Decoder>, v>(d, raw);
      });
    }
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const VF32 x = hn::Set(d, a[static_cast<std::size_t>(r) * a_stride + i]);
      HWY_UNROLL(4)
      for (std::size_t v = 0; v < kRowsVectors; ++v) {
        accumulators[r][v] = hn::MulAdd(x, w[v], accumulators[r][v]);
      }
    }
    b += ld;
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const VF32 factor = hn::Set(d, factors[r]);
    HWY_UNROLL(4)
    for (std::size_t v = 0; v < kRowsVectors; ++v) {
      float* HWY_RESTRICT sum = sums + static_cast<std::size_t>(r) * kRowsStrip + v * kLanes;
      hn::Store(hn::MulAdd(factor, accumulators[r][v], hn::Load(d, sum)), d, sum);
    }
  }
}

template <class Decoder>
using RowsFunction = void (*)(const float*, std::size_t, const typename Decoder::T*, std::int64_t,
                              std::size_t, std::int64_t, const float*, float*);

// Tiles of 1 to kMaxRows rows, by row count.
template <class Decoder, int... kRowsLessOne>
constexpr auto RowsTilesOf(std::integer_sequence<int, kRowsLessOne...>) {
  return std::array<RowsFunction<Decoder>, sizeof...(kRowsLessOne)>{
      &RowsTile<Decoder, kRowsLessOne + 1>...};
}

// D's columns [first, first + width). `a` holds the rows of A as FP32, `u` its scales by block.
template <class Decoder, int kMaxRows>
void RowsStrip(const GemmArgs& args, const Activations& activations, const WeightScales& scales,
               std::int64_t first, std::size_t width, float* values) {
  using T = typename Decoder::T;
  static constexpr auto kTiles = RowsTilesOf<Decoder>(std::make_integer_sequence<int, kMaxRows>());
  const int m = args.Adesc.rows;
  const auto k = static_cast<std::size_t>(args.Adesc.cols);
  const std::int64_t ld = args.Bdesc.ld;
  const int row_tiles = (m + kMaxRows - 1) / kMaxRows;
  alignas(64) float sums[kSkinnyMaxRows][kRowsStrip];
  for (int row = 0; row < m; ++row) std::fill_n(sums[row], RoundUpTo(width, kRowsColumns), 0.0f);

  for (std::size_t i = 0; i < k; i += kRowsDepth) {
    const std::size_t depth = std::min(kRowsDepth, k - i);
    const T* const b = static_cast<const T*>(args.B) + static_cast<std::int64_t>(i) * ld + first;
    for (std::size_t c = 0; c < width; c += kRowsColumns) {
      float factors[kSkinnyMaxRows];
      std::fill_n(factors, m, 1.0f);
      if constexpr (kScaled<Decoder>) {
        const std::size_t kb = i / kScaleBlock;
        const float v = scales.within_k(
            first + static_cast<std::int64_t>(c))[static_cast<std::int64_t>(kb) * scales.step()];
        for (int row = 0; row < m; ++row) {
          factors[row] =
              v * activations.scales[static_cast<std::size_t>(row) * activations.scale_stride + kb];
        }
      }
      const T* from = b + c;
      std::int64_t pitch = ld;
      std::int64_t ahead =
          static_cast<std::int64_t>(kRowsDepth) * ld * static_cast<std::int64_t>(sizeof(T));
      alignas(64) T rest[kRowsDepth][kRowsColumns];
      if (width - c < kRowsColumns) {  // nothing is read beyond the last column
        std::memset(rest, 0, sizeof(rest));
        for (std::size_t j = 0; j < depth; ++j) {
          std::memcpy(rest[j], from + static_cast<std::int64_t>(j) * ld, (width - c) * sizeof(T));
        }
        from = rest[0];
        pitch = static_cast<std::int64_t>(kRowsColumns);
        ahead = 0;
      }
      for (int tile = 0; tile < row_tiles; ++tile) {
        const int row = m * tile / row_tiles, rows = m * (tile + 1) / row_tiles - row;
        kTiles[static_cast<std::size_t>(rows - 1)](
            activations.data + static_cast<std::size_t>(row) * activations.stride + i,
            activations.stride, from, pitch, depth, ahead, factors + row, &sums[row][c]);
      }
    }
  }

  constexpr std::size_t kStep = kGroup<Decoder>;
  ExactElements exact(args);
  for (int row = 0; row < m; ++row) {
    for (std::size_t c = 0; c < width; c += kStep) {
      alignas(64) float natural[kStep];
      for (std::size_t v = 0; v < Decoder::kVectors; ++v) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          natural[Decoder::Source(v, lane)] = sums[row][c + v * kLanes + lane];
        }
      }
      std::memcpy(&sums[row][c], natural, sizeof(natural));
    }
    if constexpr (kScaled<Decoder>) scales.Apply(first, width, sums[row]);
    if (!IsGated(args.operation.epilogue)) {
      StoreSums(args, row, first, width, sums[row], exact);
      continue;
    }
    for (std::size_t c = 0; c < width; c += 2 * kGatedStrip) {
      StoreGated(args, row, (first + static_cast<std::int64_t>(c)) / 2,
                 std::min(kGatedStrip, (width - c) / 2), sums[row] + c, 0,
                 values != nullptr ? values + row * (std::int64_t{args.Bdesc.cols} / 2) : nullptr,
                 exact);
    }
  }
}

// The whole product. `buffer` holds the activations, `values` the rows of a D that is quantised.
template <class Decoder, int kMaxRows>
void RunSkinnyRows(const GemmArgs& args, float* buffer, float* values) {
  const int m = args.Adesc.rows;
  const std::int64_t n = args.Bdesc.cols;
  const auto k = static_cast<std::size_t>(args.Adesc.cols);
  const WeightScales scales(args);
  Activations activations{buffer, RoundUpTo(k, kSkinnyPad), nullptr, 0};
  if constexpr (kScaled<Decoder>) {
    float* const of_blocks = buffer + static_cast<std::size_t>(m) * activations.stride;
    activations.scale_stride = CopyActivationScales(args, of_blocks);
    activations.scales = of_blocks;
  }
  ThreadPool& pool = HostPool();
  const int budget = args.operation.sm_budget;
  pool.Run(
      m,
      [&](int row, int) {
        float* HWY_RESTRICT out = buffer + static_cast<std::size_t>(row) * activations.stride;
        LoadActivations(args, row, 0, k, out);
        if constexpr (Decoder::kActivationScale != 1.0f) {
          for (std::size_t i = 0; i < k; ++i) out[i] *= Decoder::kActivationScale;
        }
      },
      budget);

  const int threads = budget > 0 ? std::min(budget, pool.threads()) : pool.threads();
  const auto strip = static_cast<std::int64_t>(RowsStripFor(static_cast<std::size_t>(n), threads));
  pool.Run(
      static_cast<int>((n + strip - 1) / strip),
      [&](int task, int) {
        const std::int64_t first = task * strip;
        RowsStrip<Decoder, kMaxRows>(args, activations, scales, first,
                                     static_cast<std::size_t>(std::min(strip, n - first)), values);
      },
      budget);
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
