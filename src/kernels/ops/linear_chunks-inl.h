// The gated delta rule of one value head: what a token has of it, and a prompt in chunks, whose
// formulas are in kernels/cuda_ops/linear_chunks.cuh.
#if defined(CULET_LINEAR_CHUNKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_LINEAR_CHUNKS_INL_H_
#undef CULET_LINEAR_CHUNKS_INL_H_
#else
#define CULET_LINEAR_CHUNKS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/simd_exp-inl.h"
#include "kernels/cpu/simd_memory-inl.h"
#include "kernels/ops/linear_attention.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

HWY_INLINE VF32 LoadFloats(F32 d, const float* p, std::size_t count) {
  return LoadRow(d, DataType::kFloat32, p, count);
}

HWY_INLINE float SumOfSquares(const float* x, std::size_t count) {
  const F32 d;
  VF32 sum = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const VF32 v = LoadFloats(d, x + i, count - i);
    sum = hn::MulAdd(v, v, sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// A token of one value head.
struct HeadToken {
  const float *q, *k, *v;
  float* out;
  float kept, by;             // of the state, and of what it learns
  float of_keys, of_queries;  // bring both to length 1, queries also over the root of keys

  HeadToken(const ops::GatedDeltaArgs& args, std::int64_t row, std::int64_t head) {
    const GatedDeltaParams& p = args.params;
    const std::int64_t share = p.value_heads / p.key_heads, of = head / share;
    const std::int64_t keys = p.key_dim, values = p.value_dim;
    q = args.x + row * p.qkv_cols() + of * keys;
    k = q + p.key_heads * keys;
    v = args.x + row * p.qkv_cols() + 2 * p.key_heads * keys + head * values;
    out = args.out + row * p.out_cols() + head * values;
    const float* const gate = args.gates + row * 2 * p.value_heads + of * 2 * share + head % share;
    const double at = static_cast<double>(gate[share]) + static_cast<double>(args.bias[head]);
    const double step = at > 0 ? at + std::log1p(std::exp(-at)) : std::log1p(std::exp(at));
    kept = static_cast<float>(std::exp(-static_cast<double>(args.decays[head]) * step));
    by = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(gate[0]))));
    const auto count = static_cast<std::size_t>(keys);
    of_keys = 1 / std::sqrt(SumOfSquares(k, count) + args.epsilon);
    of_queries = 1 / std::sqrt((SumOfSquares(q, count) + args.epsilon) * static_cast<float>(keys));
  }
};

// Two vectors of columns of a matrix, row by row, so that the rows of a wide one do not meet in the
// first-level cache.
struct Panel {
  static constexpr auto kLane = static_cast<std::int64_t>(kLanes);
  static constexpr std::int64_t kWide = 2 * kLane;
  float* rows;

  // Columns [col, cols) of rows [0, count) of `from`, at most kWide, zeros behind them.
  void Take(const float* from, std::int64_t ld, std::int64_t count, std::int64_t col,
            std::int64_t cols) const {
    for (std::int64_t k = 0; k < count; ++k) Take(from + k * ld, k, col, cols);
  }
  void Take(const float* row, std::int64_t k, std::int64_t col, std::int64_t cols) const {
    const F32 d;
    for (std::int64_t i = 0; i < kWide; i += kLane) {
      const std::int64_t left = cols - col - i;
      hn::StoreU(
          left > 0 ? LoadFloats(d, row + col + i, static_cast<std::size_t>(left)) : hn::Zero(d), d,
          rows + k * kWide + i);
    }
  }

  // a (rows, count) times the panel's first rows, where a(r, k) is a[r * row_step + k * k_step];
  // `finish(row, vector, sum)` gets the sums, row by row.
  template <int kRows, class Finish>
  HWY_INLINE void MultiplyTile(const float* a, std::int64_t row_step, std::int64_t k_step,
                               std::int64_t count, Finish&& finish) const {
    const F32 d;
    VF32 sums[kRows][2];
#pragma GCC unroll 4
    for (auto& row : sums) row[0] = row[1] = hn::Zero(d);
    for (std::int64_t k = 0; k < count; ++k) {
      const VF32 first = hn::LoadU(d, rows + k * kWide);
      const VF32 second = hn::LoadU(d, rows + k * kWide + kLane);
#pragma GCC unroll 4  // the sums in registers
      for (int row = 0; row < kRows; ++row) {
        const VF32 by = hn::Set(d, a[row * row_step + k * k_step]);
        sums[row][0] = hn::MulAdd(by, first, sums[row][0]);
        sums[row][1] = hn::MulAdd(by, second, sums[row][1]);
      }
    }
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      finish(row, 0, sums[row][0]);
      finish(row, 1, sums[row][1]);
    }
  }

  // The same of rows [first, last). Four rows from r on have counts(r) elements.
  template <class Counts, class Finish>
  HWY_INLINE void Multiply(std::int64_t first, std::int64_t last, const float* a,
                           std::int64_t row_step, std::int64_t k_step, Counts&& counts,
                           Finish&& finish) const {
    for (std::int64_t row = first; row < last;) {
      const auto done = [&](int r, int i, VF32 sum) { finish(row + r, i, sum); };
      if (row + 4 <= last) {
        MultiplyTile<4>(a + row * row_step, row_step, k_step, counts(row), done);
        row += 4;
      } else {
        MultiplyTile<1>(a + row * row_step, row_step, k_step, counts(row), done);
        ++row;
      }
    }
  }
};

// A thread's memory for a chunk. Rows of keys, queries and changes are padded to a multiple of 4
// with zeros.
struct DeltaScratch {
  static constexpr std::int64_t kChunk = ops::kDeltaChunk;
  float *keys, *queries;   // (kChunk, key_dim), of length 1
  float* keys_by_element;  // (key_dim, kChunk)
  float* decays;           // (kChunk, kChunk): what token t keeps of what token i left, i <= t
  float *learnt, *scores;  // (kChunk, kChunk): of the formulas A and P
  float* changes;          // (kChunk, value_dim)
  float *kept, *by;        // (kChunk): what is left of the chunk's first state; shares
  Panel panel;             // of kChunk or key_dim rows

  DeltaScratch(float* at, std::int64_t key_dim, std::int64_t value_dim) {
    const auto take = [&](std::int64_t count) { return std::exchange(at, at + count); };
    keys = take(kChunk * key_dim), queries = take(kChunk * key_dim);
    keys_by_element = take(kChunk * key_dim);
    decays = take(kChunk * kChunk), learnt = take(kChunk * kChunk), scores = take(kChunk * kChunk);
    changes = take(kChunk * value_dim), kept = take(kChunk), by = take(kChunk);
    panel.rows = at;
  }
};

// Tokens [first, first + count) of a head, whose state changes in place; `fresh`: it is zero.
inline void DeltaChunk(const ops::GatedDeltaArgs& args, std::int64_t head, std::int64_t first,
                       std::int64_t count, bool fresh, float* state, const DeltaScratch& s) {
  constexpr std::int64_t kChunk = DeltaScratch::kChunk;
  const F32 d;
  const std::int64_t keys = args.params.key_dim, values = args.params.value_dim;
  const std::int64_t padded = (count + 3) / 4 * 4;
  // A vector of row `row` from column `col` on of a matrix of `cols` columns: change(what it was).
  const auto update = [&](float* of, std::int64_t cols, std::int64_t row, std::int64_t col,
                          auto&& change) {
    if (col >= cols) return;
    const auto left = static_cast<std::size_t>(cols - col);
    float* const at = of + row * cols + col;
    StoreRow(d, change(LoadFloats(d, at, left)), DataType::kFloat32, at, left);
  };
  for (std::int64_t t = 0; t < padded; ++t) {
    float* const k = s.keys + t * keys;
    float* const q = s.queries + t * keys;
    float* const change = s.changes + t * values;
    if (t >= count) {
      std::fill_n(k, keys, 0.0f), std::fill_n(q, keys, 0.0f), std::fill_n(change, values, 0.0f);
      s.kept[t] = s.by[t] = 0;
    } else {
      const HeadToken token(args, first + t, head);
      for (std::int64_t i = 0; i < keys; ++i) {
        k[i] = token.k[i] * token.of_keys;
        q[i] = token.q[i] * token.of_queries;
      }
      std::copy_n(token.v, values, change);
      s.by[t] = token.by;
      // Products instead of powers of sums; what is that small has no effect beside the token's
      // own.
      const auto keep = [&](float of) {
        const float product = of * token.kept;
        return product < 1e-30f ? 0.0f : product;
      };
      s.kept[t] = t > 0 ? keep(s.kept[t - 1]) : token.kept;
      float* const line = s.decays + t * kChunk;
      for (std::int64_t i = 0; i < t; ++i) line[i] = keep(line[i - kChunk]);
      line[t] = 1;
    }
    for (std::int64_t i = 0; i < keys; ++i) s.keys_by_element[i * kChunk + t] = k[i];
  }
  const auto all_keys = [&](std::int64_t) { return keys; };
  // What tokens have to do with each other.
  for (std::int64_t col = 0; col < count; col += Panel::kWide) {
    s.panel.Take(s.keys_by_element, kChunk, keys, col, padded);
    for (const bool of_queries : {false, true}) {
      s.panel.Multiply(col / 4 * 4, padded, of_queries ? s.queries : s.keys, keys, 1, all_keys,
                       [&](std::int64_t t, int i, VF32 sum) {
                         update(of_queries ? s.scores : s.learnt, kChunk, t, col + i * Panel::kLane,
                                [&](VF32) { return sum; });
                       });
    }
  }
  for (std::int64_t t = 0; t < padded; ++t) {
    const float* const decays = s.decays + t * kChunk;
    float* const learnt = s.learnt + t * kChunk;
    float* const scores = s.scores + t * kChunk;
    const std::int64_t end = t < count ? t : 0;
    for (std::int64_t i = 0; i < end; ++i) {
      learnt[i] *= s.by[t] * decays[i];
      scores[i] *= decays[i];
    }
    std::fill(learnt + end, learnt + padded, 0.0f);
    std::fill(scores + (t < count ? t + 1 : 0), scores + padded, 0.0f);
  }
  float* const out = args.out + first * args.params.out_cols() + head * values;
  const std::int64_t out_cols = args.params.out_cols();
  const float* const last = s.decays + (count - 1) * kChunk;
  for (std::int64_t col = 0; col < values; col += Panel::kWide) {
    const auto at = [&](int i) { return col + i * Panel::kLane; };
    const auto store_out = [&](std::int64_t t, int i, VF32 sum, bool add) {
      if (t >= count || at(i) >= values) return;
      const auto left = static_cast<std::size_t>(values - at(i));
      float* const to = out + t * out_cols + at(i);
      StoreRow(d, add ? hn::Add(sum, LoadFloats(d, to, left)) : sum, DataType::kFloat32, to, left);
    };
    // What the state knows of keys and queries.
    if (!fresh) {
      s.panel.Take(state, values, keys, col, values);
      s.panel.Multiply(0, count, s.keys, keys, 1, all_keys, [&](std::int64_t t, int i, VF32 known) {
        update(s.changes, values, t, at(i),
               [&](VF32 value) { return hn::NegMulAdd(known, hn::Set(d, s.kept[t]), value); });
      });
      s.panel.Multiply(0, count, s.queries, keys, 1, all_keys,
                       [&](std::int64_t t, int i, VF32 known) {
                         store_out(t, i, hn::Mul(known, hn::Set(d, s.kept[t])), false);
                       });
    }
    // Solves (1 + A) changes = shares of errors, four rows at a time.
    for (std::int64_t row = 0; row < padded; row += 4) {
      s.panel.Multiply(
          row, row + 4, s.learnt, kChunk, 1, [&](std::int64_t) { return row; },
          [&](std::int64_t t, int i, VF32 sum) {
            update(s.changes, values, t, at(i),
                   [&](VF32 error) { return hn::MulSub(hn::Set(d, s.by[t]), error, sum); });
          });
      for (std::int64_t t = row; t < row + 4; ++t) {
        for (int i = 0; i < 2; ++i) {
          update(s.changes, values, t, at(i), [&](VF32 change) {
            for (std::int64_t j = row; j < t; ++j) {
              change = hn::NegMulAdd(
                  hn::Set(d, s.learnt[t * kChunk + j]),
                  hn::LoadU(d, s.panel.rows + j * Panel::kWide + i * Panel::kLane), change);
            }
            return change;
          });
        }
        s.panel.Take(s.changes + t * values, t, col, values);
      }
    }
    s.panel.Multiply(
        0, padded, s.scores, kChunk, 1, [&](std::int64_t t) { return t + 4; },
        [&](std::int64_t t, int i, VF32 sum) { store_out(t, i, sum, !fresh); });
    // The next state.
    for (std::int64_t t = 0; t < count; ++t) {
      for (int i = 0; i < 2; ++i) {
        float* const line = s.panel.rows + t * Panel::kWide + i * Panel::kLane;
        hn::StoreU(hn::Mul(hn::LoadU(d, line), hn::Set(d, last[t])), d, line);
      }
    }
    const VF32 kept = hn::Set(d, s.kept[count - 1]);
    s.panel.Multiply(
        0, keys, s.keys, 1, keys, [&](std::int64_t) { return count; },
        [&](std::int64_t key, int i, VF32 sum) {
          update(state, values, key, at(i),
                 [&](VF32 known) { return hn::MulAdd(kept, known, sum); });
        });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // CULET_LINEAR_CHUNKS_INL_H_
