// Products with few rows: lanes run along k, a weight is read once and becomes FP32 in a register,
// where it meets all rows of its tile.
#if defined(CULET_SIMD_SKINNY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_SKINNY_INL_H_
#undef CULET_SIMD_SKINNY_INL_H_
#else
#define CULET_SIMD_SKINNY_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "kernels/cpu/simd_decode-inl.h"
#include "kernels/cpu/simd_memory-inl.h"
#include "kernels/cpu/simd_problem.h"
#include "kernels/cpu/simd_skinny.h"
#include "kernels/cpu/simd_skinny_plain-inl.h"
#include "kernels/cpu/simd_store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

template <class Decoder>
inline constexpr std::size_t kGroup = Decoder::kVectors* kLanes;

template <class Decoder>
inline constexpr bool kScaled = std::is_base_of_v<DecodeE4m3, Decoder>;

// Whether the decoder ignores NaN codes unless it is told to handle them.
template <class Decoder>
inline constexpr bool kMissesNan = requires {
  typename Decoder::Seen;
};

// Rows of A as the tiles read them: FP32, in the decoder's order, zeros behind k.
struct Activations {
  const float* data;
  std::size_t stride;        // floats a row
  const float* scales;       // U, row by row; null without scales
  std::size_t scale_stride;  // floats a row
};

// One tile's weights: the columns' starts, and their scales, which are mostly those of one block.
template <class T, int kCols>
struct TileWeights {
  const T* column[kCols];
  const float* scales[kCols];  // V at k-block 0; null without scales
  std::int64_t scale_step;     // to the next k-block
  bool one_block;              // whether all have the first one's
};

// Calls function(std::integral_constant<int, v>()) for v in [0, kCount).
template <int kCount, class F>
HWY_INLINE void ForEachVector(F&& function) {
  [&]<int... kVector>(std::integer_sequence<int, kVector...>) {
    (function(std::integral_constant<int, kVector>()), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

// Whether the decoder writes a block of weights to a buffer before they are multiplied.
template <class Decoder>
inline constexpr bool kStages = requires {
  &Decoder::Stage;
};

// What Decoder::SeenNan looks at.
template <class Decoder>
struct Tracked {};
template <class Decoder>
requires kMissesNan<Decoder>
struct Tracked<Decoder> {
  typename Decoder::Seen seen;
};

// Vector v of a group; kAny: NaN included.
template <class Decoder, bool kAny, int kVector>
HWY_INLINE VF32 GetVector(F32 d, const typename Decoder::Raw& raw) {
  if constexpr (kAny) {
    return Decoder::template GetAny<kVector>(d, raw);
  } else {
    return Decoder::template Get<kVector>(d, raw);
  }
}

// accumulators[r][c] += A's row r times column c over one group at k.
template <class Decoder, bool kAny, int kRows, int kCols>
HWY_INLINE void MultiplyGroup(F32 d, const float* HWY_RESTRICT a, std::size_t a_stride,
                              const typename Decoder::T* const HWY_RESTRICT* columns, std::size_t k,
                              VF32 (&accumulators)[kRows][kCols], Tracked<Decoder>& tracked) {
  // One row: column after column, so that few of them are in registers. Several rows: each element
  // of A, once loaded, meets all columns.
  constexpr int kTogether = kRows == 1 ? 1 : kCols;
  HWY_UNROLL(8)
  for (int first = 0; first < kCols; first += kTogether) {
    constexpr int kVectors = static_cast<int>(Decoder::kVectors);
    VF32 w[kTogether][kVectors];
    HWY_UNROLL(8)
    for (int c = 0; c < kTogether; ++c) {
      const typename Decoder::Raw raw = Decoder::Load(d, columns[first + c] + k);
      if constexpr (kMissesNan<Decoder> && !kAny) {
        tracked.seen = Decoder::See(tracked.seen, raw);
      }
      ForEachVector<kVectors>([&](auto v)
                                  HWY_ATTR { w[c][v] = GetVector<Decoder, kAny, v>(d, raw); });
    }
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const VF32 x = hn::Load(
            d, a + static_cast<std::size_t>(r) * a_stride + static_cast<std::size_t>(v) * kLanes);
        HWY_UNROLL(8)
        for (int c = 0; c < kTogether; ++c) {
          accumulators[r][first + c] = hn::MulAdd(x, w[c][v], accumulators[r][first + c]);
        }
      }
    }
  }
}

// accumulators[r][c] = A's row r times column c over [begin, end) of k; kAny: NaN included.
template <class Decoder, bool kAny, int kRows, int kCols>
HWY_INLINE void MultiplyBlock(F32 d, const float* HWY_RESTRICT a, std::size_t a_stride,
                              const typename Decoder::T* const HWY_RESTRICT* columns,
                              std::size_t begin, std::size_t end,
                              VF32 (&accumulators)[kRows][kCols], Tracked<Decoder>& tracked) {
  using T = typename Decoder::T;
  constexpr std::size_t kStep = kGroup<Decoder>;
  constexpr bool kFar = kRows == 1 && !kScaled<Decoder>;
  constexpr std::size_t kAhead = (kFar ? kSkinnyFarBytes : kSkinnyAheadBytes) / sizeof(T);
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int c = 0; c < kCols; ++c) accumulators[r][c] = hn::Zero(d);
  }
  std::size_t i = begin;
  for (; i + kStep <= end; i += kStep) {
    if constexpr (!kAny) {
      // Beyond a column's end lies the next tile's data.
      HWY_UNROLL(8)
      for (int c = 0; c < kCols; ++c) __builtin_prefetch(columns[c] + i + kAhead, 0, kFar ? 2 : 3);
    }
    MultiplyGroup<Decoder, kAny, kRows, kCols>(d, a + i, a_stride, columns, i, accumulators,
                                               tracked);
  }
  if (i < end) {  // the last group is partial: zeros stand behind it, and nothing is read there
    alignas(64) T rest[kCols][kStep] = {};
    const T* rests[kCols];
    for (int c = 0; c < kCols; ++c) {
      std::memcpy(rest[c], columns[c] + i, (end - i) * sizeof(T));
      rests[c] = rest[c];
    }
    MultiplyGroup<Decoder, kAny, kRows, kCols>(d, a + i, a_stride, rests, 0, accumulators, tracked);
  }
}

// Through a buffer: decodes the block's weights of all columns first.
template <class Decoder, int kRows, int kCols>
HWY_INLINE void MultiplyStagedBlock(F32 d, const float* HWY_RESTRICT a, std::size_t a_stride,
                                    const typename Decoder::T* const HWY_RESTRICT* columns,
                                    std::size_t begin, std::size_t end,
                                    VF32 (&accumulators)[kRows][kCols], Tracked<Decoder>& tracked) {
  constexpr std::size_t kStep = kGroup<Decoder>;
  alignas(64) std::uint16_t staged[kScaleBlock / kStep * kStep * kCols];
  std::uint16_t* to = staged;
  const auto stage = [&](const typename Decoder::T* from) HWY_ATTR {
    const typename Decoder::Raw raw = Decoder::Load(d, from);
    tracked.seen = Decoder::See(tracked.seen, raw);
    Decoder::Stage(raw, to);
    to += kStep;
  };
  std::size_t i = begin;
  for (; i + kStep <= end; i += kStep) {
    HWY_UNROLL(8)
    for (int c = 0; c < kCols; ++c) {
      __builtin_prefetch(columns[c] + i + kSkinnyAheadBytes);
      stage(columns[c] + i);
    }
  }
  if (i < end) {  // the last group is partial: zeros stand behind it, and nothing is read there
    for (int c = 0; c < kCols; ++c) {
      alignas(64) typename Decoder::T rest[kStep] = {};
      std::memcpy(rest, columns[c] + i, end - i);
      stage(rest);
    }
  }

  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int c = 0; c < kCols; ++c) accumulators[r][c] = hn::Zero(d);
  }
  // As in MultiplyGroup.
  constexpr int kTogether = kRows == 1 ? 1 : kCols;
  const float* HWY_RESTRICT x = a + begin;
  for (const std::uint16_t* from = staged; from < to; from += kStep * kCols, x += kStep) {
    HWY_UNROLL(8)
    for (int first = 0; first < kCols; first += kTogether) {
      HWY_UNROLL(4)
      for (std::size_t v = 0; v < Decoder::kVectors; ++v) {
        VF32 w[kTogether];
        HWY_UNROLL(8)
        for (int c = 0; c < kTogether; ++c) {
          w[c] = Decoder::FromStage(
              d, from + static_cast<std::size_t>(first + c) * kStep + v * kLanes);
        }
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) {
          const VF32 row = hn::Load(d, x + static_cast<std::size_t>(r) * a_stride + v * kLanes);
          HWY_UNROLL(8)
          for (int c = 0; c < kTogether; ++c) {
            accumulators[r][first + c] = hn::MulAdd(row, w[c], accumulators[r][first + c]);
          }
        }
      }
    }
  }
}

// Handles NaN too; a separate function, because it is rare.
template <class Decoder, int kRows, int kCols>
HWY_NOINLINE void MultiplyAnyBlock(const float* HWY_RESTRICT a, std::size_t a_stride,
                                   const typename Decoder::T* const HWY_RESTRICT* columns,
                                   std::size_t begin, std::size_t end,
                                   VF32 (&accumulators)[kRows][kCols]) {
  Tracked<Decoder> none;
  MultiplyBlock<Decoder, true, kRows, kCols>(F32(), a, a_stride, columns, begin, end, accumulators,
                                             none);
}

// sums[r * row_stride + c * col_stride] = the products of kRows rows and kCols columns over all of
// k.
template <class Decoder, int kRows, int kCols>
HWY_NOINLINE void DotTile(const Activations& activations, int row,
                          const TileWeights<typename Decoder::T, kCols>& weights, std::size_t k,
                          float* HWY_RESTRICT sums, std::size_t row_stride,
                          std::size_t col_stride) {
  using T = typename Decoder::T;
  const F32 d;
  const std::size_t a_stride = activations.stride;
  const float* HWY_RESTRICT a = activations.data + static_cast<std::size_t>(row) * a_stride;
  const T* columns[kCols];
  for (int c = 0; c < kCols; ++c) columns[c] = weights.column[c];

  VF32 total[kRows][kCols];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int c = 0; c < kCols; ++c) total[r][c] = hn::Zero(d);
  }

  const std::size_t block = kScaled<Decoder> ? std::size_t{kScaleBlock} : k;
  for (std::size_t begin = 0; begin < k; begin += block) {
    const std::size_t end = std::min(k, begin + block);
    VF32 accumulators[kRows][kCols];
    Tracked<Decoder> tracked;
    if constexpr (kMissesNan<Decoder>) tracked.seen = Decoder::SeenNone();
    if constexpr (kStages<Decoder>) {
      MultiplyStagedBlock<Decoder, kRows, kCols>(d, a, a_stride, columns, begin, end, accumulators,
                                                 tracked);
    } else {
      MultiplyBlock<Decoder, false, kRows, kCols>(d, a, a_stride, columns, begin, end, accumulators,
                                                  tracked);
    }
    if constexpr (kMissesNan<Decoder>) {
      if (HWY_UNLIKELY(Decoder::SeenNan(tracked.seen))) {
        // An array of its own: the other one stays in registers.
        VF32 any[kRows][kCols];
        MultiplyAnyBlock<Decoder, kRows, kCols>(a, a_stride, columns, begin, end, any);
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) {
          HWY_UNROLL(8)
          for (int c = 0; c < kCols; ++c) accumulators[r][c] = any[r][c];
        }
      }
    }
    if constexpr (kScaled<Decoder>) {
      const std::size_t kb = begin / kScaleBlock;
      const std::int64_t v_at = static_cast<std::int64_t>(kb) * weights.scale_step;
      const float* HWY_RESTRICT u =
          activations.scales + static_cast<std::size_t>(row) * activations.scale_stride + kb;
      if (HWY_LIKELY(weights.one_block)) {
        const float v = weights.scales[0][v_at];
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) {
          const VF32 scale =
              hn::Set(d, u[static_cast<std::size_t>(r) * activations.scale_stride] * v);
          HWY_UNROLL(8)
          for (int c = 0; c < kCols; ++c) {
            total[r][c] = hn::MulAdd(scale, accumulators[r][c], total[r][c]);
          }
        }
      } else {
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) {
          const float of_row = u[static_cast<std::size_t>(r) * activations.scale_stride];
          HWY_UNROLL(8)
          for (int c = 0; c < kCols; ++c) {
            const VF32 scale = hn::Set(d, of_row * weights.scales[c][v_at]);
            total[r][c] = hn::MulAdd(scale, accumulators[r][c], total[r][c]);
          }
        }
      }
    } else {
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(8)
        for (int c = 0; c < kCols; ++c) total[r][c] = accumulators[r][c];
      }
    }
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int c = 0; c < kCols; ++c) {
      sums[static_cast<std::size_t>(r) * row_stride + static_cast<std::size_t>(c) * col_stride] =
          hn::GetLane(hn::SumOfLanes(d, total[r][c]));
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
// The same for E4M3, in vectors of plain C++.
template <int kRows, int kCols>
HWY_NOINLINE void DotPlainTile(const Activations& activations, int row,
                               const TileWeights<std::uint8_t, kCols>& weights, std::size_t k,
                               float* HWY_RESTRICT sums, std::size_t row_stride,
                               std::size_t col_stride) {
  const std::size_t a_stride = activations.stride;
  const float* HWY_RESTRICT a = activations.data + static_cast<std::size_t>(row) * a_stride;
  PlainF32x4 total[kRows][kCols] = {};
  for (std::size_t begin = 0; begin < k; begin += kScaleBlock) {
    const std::size_t end = std::min(k, begin + kScaleBlock);
    PlainF32x4 accumulators[kRows][kCols];
    MultiplyPlainBlock<kRows, kCols>(a, a_stride, weights.column, begin, end, kSkinnyAheadBytes,
                                     accumulators);
    const std::size_t kb = begin / kScaleBlock;
    const std::int64_t v_at = static_cast<std::int64_t>(kb) * weights.scale_step;
    const float* HWY_RESTRICT u =
        activations.scales + static_cast<std::size_t>(row) * activations.scale_stride + kb;
    for (int r = 0; r < kRows; ++r) {
      const float of_row = u[static_cast<std::size_t>(r) * activations.scale_stride];
      // Twice the sums, not twice the scale, which may be near the end of FP32's range.
      for (int c = 0; c < kCols; ++c) {
        total[r][c] +=
            accumulators[r][c] * DecodePlainE4m3::kSumScale * (of_row * weights.scales[c][v_at]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCols; ++c) {
      sums[static_cast<std::size_t>(r) * row_stride + static_cast<std::size_t>(c) * col_stride] =
          PlainSum(total[r][c]);
    }
  }
}
#endif

template <class Decoder, int kCols>
using TileFunction = void (*)(const Activations&, int,
                              const TileWeights<typename Decoder::T, kCols>&, std::size_t, float*,
                              std::size_t, std::size_t);

// Tiles of 1 to kMaxRows rows, by row count.
template <class Decoder, int kCols, int... kRowsLessOne>
constexpr auto TilesOf(std::integer_sequence<int, kRowsLessOne...>) {
#if HWY_TARGET == HWY_SCALAR
  if constexpr (std::is_same_v<Decoder, DecodePlainE4m3>) {
    return std::array<TileFunction<Decoder, kCols>, sizeof...(kRowsLessOne)>{
        &DotPlainTile<kRowsLessOne + 1, kCols>...};
  } else
#endif
    return std::array<TileFunction<Decoder, kCols>, sizeof...(kRowsLessOne)>{
        &DotTile<Decoder, kRowsLessOne + 1, kCols>...};
}

// A's element (row, k) scaled and in the decoder's order.
template <class Decoder>
void ArrangeActivations(const GemmArgs& args, std::int64_t row, std::int64_t begin,
                        std::size_t count, float* HWY_RESTRICT out) {
  constexpr std::size_t kStep = kGroup<Decoder>;
  for (std::size_t i = 0; i < count; i += kStep) {
    alignas(64) float natural[kStep] = {};
    LoadActivations(args, row, begin + static_cast<std::int64_t>(i), std::min(kStep, count - i),
                    natural);
    for (std::size_t v = 0; v < Decoder::kVectors; ++v) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        out[i + v * kLanes + lane] = natural[Decoder::Source(v, lane)] * Decoder::kActivationScale;
      }
    }
  }
}

// A's scales by row and block of K. Returns the floats a row.
inline std::size_t CopyActivationScales(const GemmArgs& args, float* HWY_RESTRICT scales) {
  const std::size_t blocks =
      RoundUpTo(static_cast<std::size_t>(args.Adesc.cols), kScaleBlock) / kScaleBlock;
  const ScaleView u = ScaleView::OfA(args);
  for (int row = 0; row < args.Adesc.rows; ++row) {
    for (std::size_t kb = 0; kb < blocks; ++kb) {
      *scales++ = u.at(row, static_cast<std::int64_t>(kb * kScaleBlock));
    }
  }
  return blocks;
}

// The whole product. `buffer` holds the activations, `values` the rows of a D that is quantised.
template <class Decoder, int kMaxRows, int kCols>
void RunSkinny(const GemmArgs& args, float* buffer, float* values) {
  using T = typename Decoder::T;
  const int m = args.Adesc.rows;
  const std::int64_t n = args.Bdesc.cols;
  const auto k = static_cast<std::size_t>(args.Adesc.cols);
  ThreadPool& pool = HostPool();

  Activations activations{buffer, RoundUpTo(k, kSkinnyPad), nullptr, 0};
  const WeightScales v(args);
  if constexpr (kScaled<Decoder>) {
    float* const scales = buffer + static_cast<std::size_t>(m) * activations.stride;
    activations.scale_stride = CopyActivationScales(args, scales);
    activations.scales = scales;
  }

  const std::size_t slices = (k + kSkinnySlice - 1) / kSkinnySlice;
  pool.Run(
      static_cast<int>(slices) * m,
      [&](int task, int) {
        const std::size_t row = static_cast<std::size_t>(task) / slices;
        const std::size_t begin = static_cast<std::size_t>(task) % slices * kSkinnySlice;
        ArrangeActivations<Decoder>(
            args, static_cast<std::int64_t>(row), static_cast<std::int64_t>(begin),
            std::min(kSkinnySlice, k - begin), buffer + row * activations.stride + begin);
      },
      args.operation.sm_budget);

  static constexpr auto kTiles =
      TilesOf<Decoder, kCols>(std::make_integer_sequence<int, kMaxRows>());
  const int row_tiles = (m + kMaxRows - 1) / kMaxRows;
  const auto strips = static_cast<int>((n + kSkinnyStrip - 1) / kSkinnyStrip);
  const bool gated = IsGated(args.operation.epilogue);
  const bool halves = gated && args.operation.gate_order == GateOrder::kHalves;
  pool.Run(
      strips,
      [&](int strip, int) {
        // Columns beyond the strip are stored after its end.
        alignas(64) float sums[kSkinnyMaxRows][kSkinnyStrip + 16];
        const std::int64_t first = std::int64_t{strip} * kSkinnyStrip;
        const std::int64_t width = std::min<std::int64_t>(kSkinnyStrip, n - first);
        // With gate and up one behind the other a strip is a half of each.
        const std::int64_t half = width / 2, gates = first / 2, ups = n / 2 + gates;
        const auto column_of = [&](std::int64_t place) {
          if (!halves) return first + place;
          return place < half ? gates + place : ups + (place - half);
        };
        TileWeights<T, kCols> weights;
        weights.scale_step = v.step();
        // A tile's columns lie a part of the strip apart, so that tile after tile each of them is
        // one long stream. With few rows, where memory is the limit, an odd number of columns lets
        // the streams are at different offsets in their pages.
        const std::int64_t part = (width + kCols - 1) / kCols | (m <= 2 ? 1 : 0);
        for (std::int64_t column = 0; column < part; ++column) {
          for (int c = 0; c < kCols; ++c) {
            // The last part repeats the last column rather than reading beyond it.
            const std::int64_t at = column_of(std::min(column + c * part, width - 1));
            weights.column[c] = static_cast<const T*>(args.B) + at * args.Bdesc.ld;
            weights.scales[c] = kScaled<Decoder> ? v.within_k(at) : nullptr;
          }
          weights.one_block = std::ranges::all_of(
              weights.scales, [&](const float* scales) { return scales == weights.scales[0]; });
          for (int tile = 0; tile < row_tiles; ++tile) {
            const int row = m * tile / row_tiles;
            const int rows = m * (tile + 1) / row_tiles - row;
            kTiles[static_cast<std::size_t>(rows - 1)](activations, row, weights, k,
                                                       &sums[row][column], std::size(sums[0]),
                                                       static_cast<std::size_t>(part));
          }
        }
        ExactElements exact(args);
        for (int row = 0; row < m; ++row) {
          if constexpr (kScaled<Decoder>) {
            if (halves) {
              v.Apply(gates, static_cast<std::size_t>(half), sums[row]);
              v.Apply(ups, static_cast<std::size_t>(half), sums[row] + half);
            } else {
              v.Apply(first, static_cast<std::size_t>(width), sums[row]);
            }
          }
          if (gated) {
            StoreGated(args, row, gates, static_cast<std::size_t>(half), sums[row],
                       static_cast<std::size_t>(half),
                       values != nullptr ? values + row * (n / 2) : nullptr, exact);
          } else {
            StoreSums(args, row, first, static_cast<std::size_t>(width), sums[row], exact);
          }
        }
      },
      args.operation.sm_budget);
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
