// Products with many rows: weights become FP32 panels in the caches, lanes run along n, a tile of
// D stays in registers over 128 steps of k.
#if defined(CULET_SIMD_BLOCKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_BLOCKED_INL_H_
#undef CULET_SIMD_BLOCKED_INL_H_
#else
#define CULET_SIMD_BLOCKED_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "culet/packing.h"
#include "kernels/cpu/simd_blocked.h"
#include "kernels/cpu/simd_pack-inl.h"
#include "kernels/cpu/simd_quantize.h"
#include "kernels/cpu/simd_store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// sums[r][c] += factors[r] * (a's row r times panel's column c) for a tile of kRows x kVectors
// vectors, and times columns[c] unless `columns` is null. `a` holds kRows values for each of
// `depth` steps of k.
template <int kRows, int kVectors>
HWY_NOINLINE void OuterTile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT panel,
                            std::size_t depth, const float* HWY_RESTRICT factors,
                            const float* HWY_RESTRICT columns, float* HWY_RESTRICT sums) {
  const F32 d;
  VF32 accumulators[kRows][kVectors];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) accumulators[r][v] = hn::Zero(d);
  }
  for (std::size_t i = 0; i < depth; ++i) {
    // The same rows' next 128 steps: one tile of A is short, too short for hardware to foresee.
    __builtin_prefetch(a + kBlockedDepth * kRows, 0, 2);
    VF32 b[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      b[v] = hn::Load(d, panel + static_cast<std::size_t>(v) * kLanes);
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const VF32 x = hn::Set(d, a[r]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        accumulators[r][v] = hn::MulAdd(x, b[v], accumulators[r][v]);
      }
    }
    a += kRows;
    panel += kVectors * kLanes;
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    const VF32 factor = hn::Set(d, factors[r]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const std::size_t c = static_cast<std::size_t>(v) * kLanes;
      float* HWY_RESTRICT sum = sums + r * kBlockedColumns + c;
      const VF32 scale = columns == nullptr ? factor : hn::Mul(factor, hn::LoadU(d, columns + c));
      hn::StoreU(hn::MulAdd(scale, accumulators[r][v], hn::LoadU(d, sum)), d, sum);
    }
  }
}

using OuterFunction = void (*)(const float*, const float*, std::size_t, const float*, const float*,
                               float*);

// Tiles of 1 to N rows, by row count.
template <int kVectors, int... kRowsLessOne>
constexpr auto OuterTilesOf(std::integer_sequence<int, kRowsLessOne...>) {
  return std::array<OuterFunction, sizeof...(kRowsLessOne)>{
      &OuterTile<kRowsLessOne + 1, kVectors>...};
}

// Rows cut into tiles of at most `most`, as evenly as can be.
struct RowTiles {
  int rows;
  int count;
  RowTiles(int rows_in, int most) : rows(rows_in), count((rows_in + most - 1) / most) {}
  int begin(int tile) const { return static_cast<int>(std::int64_t{rows} * tile / count); }
};

// The rows [first, first + tiles.rows) of A as FP32, each tile by itself, k-major.
inline void PackActivations(const GemmArgs& args, std::int64_t first, const RowTiles& tiles,
                            float* HWY_RESTRICT out) {
  const auto k = static_cast<std::size_t>(args.Adesc.cols);
  HostPool().Run(
      tiles.count,
      [&](int tile, int) {
        const int begin = tiles.begin(tile);
        const auto rows = static_cast<std::size_t>(tiles.begin(tile + 1) - begin);
        float* HWY_RESTRICT packed = out + static_cast<std::size_t>(begin) * k;
        alignas(64) float row_values[kBlockedDepth];
        for (std::size_t i = 0; i < k; i += kBlockedDepth) {
          const std::size_t count = std::min<std::size_t>(kBlockedDepth, k - i);
          for (std::size_t r = 0; r < rows; ++r) {
            LoadActivations(args, first + begin + static_cast<std::int64_t>(r),
                            static_cast<std::int64_t>(i), count, row_values);
            for (std::size_t j = 0; j < count; ++j) {
              packed[(i + j) * rows + r] = row_values[j];
            }
          }
        }
      },
      args.operation.sm_budget);
}

// Where element (k, column) of a weight in panels lies (kPackPanels64).
inline const std::byte* PanelElement(const GemmArgs& args, std::int64_t k, std::int64_t column) {
  const std::int64_t element =
      (column / kPanelColumns * args.Bdesc.rows + k) * kPanelColumns + column % kPanelColumns;
  return static_cast<const std::byte*>(args.B) +
         element * static_cast<std::int64_t>(SizeOf(args.Bdesc.type));
}

// B[k .. k + depth, column .. column + width) as panels of `panel_width` columns; the last one is
// filled up with zeros.
template <class Decoder>
void PackWeights(const GemmArgs& args, std::int64_t k, std::size_t depth, std::int64_t column,
                 std::int64_t width, std::size_t panel_width, float* HWY_RESTRICT panels) {
  const auto columns = static_cast<std::size_t>(width);
  for (std::size_t at = 0; at < RoundUpTo(columns, panel_width); at += kLanes) {
    float* HWY_RESTRICT out =
        panels + at / panel_width * panel_width * kBlockedDepth + at % panel_width;
    const std::size_t count = std::min(kLanes, columns - std::min(at, columns));
    if (args.Bdesc.pack != 0) {  // a row of k at a time, decoded as it lies
      const std::int64_t from = column + static_cast<std::int64_t>(count > 0 ? at : 0);
      PackRows(args.Bdesc.type, PanelElement(args, k, from), kPanelColumns, count, depth, out,
               panel_width);
      continue;
    }
    const void* source =
        count > 0 ? ElementAt(args.B, args.Bdesc, k, column + static_cast<std::int64_t>(at))
                  : args.B;
    if (args.Bdesc.order == Order::kColMajor) {
      PackColumns<Decoder>(static_cast<const typename Decoder::T*>(source), args.Bdesc.ld, count,
                           depth, out, panel_width);
    } else {
      PackRows(args.Bdesc.type, static_cast<const std::byte*>(source), args.Bdesc.ld, count, depth,
               out, panel_width);
    }
  }
}

// The strip's weights from k on, as many as are packed at a time; none after the last ones.
inline Prefetcher NextWeights(const GemmArgs& args, std::size_t k, std::int64_t column,
                              std::int64_t width) {
  const std::size_t all = static_cast<std::size_t>(args.Adesc.cols);
  if (k >= all) return Prefetcher(nullptr, 0, 0, 0);
  const std::size_t size = SizeOf(args.Bdesc.type);
  const std::size_t depth = std::min<std::size_t>(kBlockedDepth, all - k);
  const auto columns = static_cast<std::size_t>(width);
  if (args.Bdesc.pack != 0) {
    const std::size_t panels = (columns + kPanelColumns - 1) / kPanelColumns;
    const std::size_t row = kPanelColumns * size;
    return Prefetcher(PanelElement(args, static_cast<std::int64_t>(k), column),
                      static_cast<std::int64_t>(all * row), panels, depth * row);
  }
  const bool by_column = args.Bdesc.order == Order::kColMajor;
  return Prefetcher(ElementAt(args.B, args.Bdesc, static_cast<std::int64_t>(k), column),
                    args.Bdesc.ld * static_cast<std::int64_t>(size), by_column ? columns : depth,
                    (by_column ? depth : columns) * size);
}

// Columns of B side by side, and where their panels and sums begin in a strip's.
struct StripPiece {
  std::int64_t column;
  std::int64_t width;
  std::size_t at;
};

// What a strip multiplies: columns side by side, or half of it gates and half of it ups.
struct StripPieces {
  StripPiece piece[2];
  int count;
};

inline StripPieces PiecesOf(const GemmArgs& args, std::int64_t column) {
  const std::int64_t n = args.Bdesc.cols,
                     width = std::min<std::int64_t>(kBlockedColumns, n - column);
  if (!IsGated(args.operation.epilogue) || args.operation.gate_order == GateOrder::kEights) {
    return {{{column, width, 0}, {}}, 1};
  }
  return {{{column / 2, width / 2, 0}, {(n + column) / 2, width / 2, kGatedStrip}}, 2};
}

// D's rows [first, first + tiles.rows), of B's columns [column, column + kBlockedColumns) or as
// many of each half. `values`: those rows of a D that is quantised.
template <class Decoder, int kMaxRows, int kVectors>
void BlockedStrip(const GemmArgs& args, std::int64_t first, const RowTiles& tiles,
                  std::int64_t column, const float* HWY_RESTRICT activations,
                  float* HWY_RESTRICT own, float* values) {
  static constexpr auto kTiles =
      OuterTilesOf<kVectors>(std::make_integer_sequence<int, kMaxRows>());
  constexpr std::size_t kPanel = kVectors * kLanes;
  const auto k = static_cast<std::size_t>(args.Adesc.cols);
  const StripPieces pieces = PiecesOf(args, column);
  float* HWY_RESTRICT panels = own;
  float* HWY_RESTRICT sums = panels + kBlockedDepth * kBlockedColumns;
  float* HWY_RESTRICT factors = sums + tiles.rows * kBlockedColumns;
  std::fill_n(sums, tiles.rows * kBlockedColumns, 0.0f);
  std::fill_n(factors, tiles.rows, 1.0f);

  constexpr bool kScaled = std::is_same_v<Decoder, DecodeE4m3>;
  const ScaleView u = ScaleView::OfA(args);
  const WeightScales v(args, true);
  float of_columns[kBlockedColumns] = {};  // where each has its own; those of the padding are 0
  const float* const columns = kScaled && v.by_group() ? of_columns : nullptr;
  const auto multiply = [&](const StripPiece& piece, std::size_t i, std::size_t depth) {
    PackWeights<Decoder>(args, static_cast<std::int64_t>(i), depth, piece.column, piece.width,
                         kPanel, panels + piece.at * kBlockedDepth);
    if constexpr (kScaled) {
      const auto kb = static_cast<std::int64_t>(i / kScaleBlock);
      const float of_b = v.within_k(piece.column)[kb * v.step()];
      if (columns != nullptr) {
        v.CopyGroup(piece.column, static_cast<std::size_t>(piece.width),
                    static_cast<std::int64_t>(i), of_columns + piece.at);
      }
      for (int r = 0; r < tiles.rows; ++r) {
        factors[r] = u.at(first + r, static_cast<std::int64_t>(i)) * of_b;
      }
    }
    Prefetcher next = NextWeights(args, i + depth, piece.column, piece.width);
    const std::size_t tile_calls = (static_cast<std::size_t>(piece.width) + kPanel - 1) / kPanel *
                                   static_cast<std::size_t>(tiles.count);
    const std::size_t lines_a_call = (next.lines() + tile_calls - 1) / tile_calls;
    const std::size_t end = piece.at + static_cast<std::size_t>(piece.width);
    for (std::size_t c = piece.at; c < end; c += kPanel) {
      for (int tile = 0; tile < tiles.count; ++tile) {
        next.Advance(lines_a_call);
        const int row = tiles.begin(tile), rows = tiles.begin(tile + 1) - row;
        kTiles[static_cast<std::size_t>(rows - 1)](
            activations + static_cast<std::size_t>(row) * k + i * static_cast<std::size_t>(rows),
            panels + c * kBlockedDepth, depth, factors + row,
            columns == nullptr ? nullptr : columns + c, sums + row * kBlockedColumns + c);
      }
    }
  };
  for (std::size_t i = 0; i < k; i += kBlockedDepth) {
    const std::size_t depth = std::min<std::size_t>(kBlockedDepth, k - i);
    for (int p = 0; p < pieces.count; ++p) multiply(pieces.piece[p], i, depth);
  }

  const bool gated = IsGated(args.operation.epilogue);
  const std::int64_t n = args.Bdesc.cols;
  ExactElements exact(args);
  for (int r = 0; r < tiles.rows; ++r) {
    float* const row_sums = sums + r * kBlockedColumns;
    for (int p = 0; p < pieces.count && kScaled; ++p) {
      const StripPiece& piece = pieces.piece[p];
      v.Apply(piece.column, static_cast<std::size_t>(piece.width), row_sums + piece.at);
    }
    if (gated) {
      const auto width =
          static_cast<std::size_t>(std::min<std::int64_t>(kBlockedColumns, n - column));
      StoreGated(args, first + r, column / 2, width / 2, row_sums, kGatedStrip,
                 values != nullptr ? values + r * (n / 2) : nullptr, exact);
    } else {
      StoreSums(args, first + r, column, static_cast<std::size_t>(pieces.piece[0].width), row_sums,
                exact);
    }
  }
}

template <class Decoder, int kMaxRows, int kVectors>
void RunBlocked(const GemmArgs& args, const BlockedBuffers& buffers) {
  const int m = args.Adesc.rows;
  const std::size_t own_floats = BlockedThreadFloats(static_cast<std::size_t>(m));
  const int passes = (m + kBlockedRows - 1) / kBlockedRows;
  const auto strips =
      static_cast<int>((std::int64_t{args.Bdesc.cols} + kBlockedColumns - 1) / kBlockedColumns);
  for (int pass = 0; pass < passes; ++pass) {
    const auto first = static_cast<int>(std::int64_t{m} * pass / passes);
    const auto last = static_cast<int>(std::int64_t{m} * (pass + 1) / passes);
    const RowTiles tiles(last - first, kMaxRows);
    PackActivations(args, first, tiles, buffers.shared);
    HostPool().Run(
        strips,
        [&](int strip, int thread) {
          BlockedStrip<Decoder, kMaxRows, kVectors>(
              args, first, tiles, std::int64_t{strip} * kBlockedColumns, buffers.shared,
              buffers.own + static_cast<std::size_t>(thread) * own_floats, buffers.values);
        },
        buffers.threads);
    if (buffers.values != nullptr) {
      QuantizeRowsOfD(args, first, tiles.rows, buffers.values, buffers.threads);
    }
  }
}

template <int kMaxRows, int kVectors>
void RunBlockedOfAnyType(const GemmArgs& args, const BlockedBuffers& buffers) {
  switch (args.Bdesc.type) {
    case DataType::kFloat16:
      return RunBlocked<DecodeF16, kMaxRows, kVectors>(args, buffers);
    case DataType::kBfloat16:
      return RunBlocked<DecodeBf16, kMaxRows, kVectors>(args, buffers);
    case DataType::kFloat8_e4m3:
      return RunBlocked<DecodeE4m3, kMaxRows, kVectors>(args, buffers);
    default:
      return RunBlocked<DecodeF32, kMaxRows, kVectors>(args, buffers);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
