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

// Rows [0, kRows) and a vector, or two, of a product; `finish(row, vector, sum)` gets them.
template <int kRows, int kVectors, class Finish>
HWY_INLINE void MultiplyTile(const float* a, std::int64_t row_step, std::int64_t k_step,
                             const float* b, std::int64_t ld, std::int64_t count, std::size_t left,
                             Finish&& finish) {
  const F32 d;
  VF32 sums[kRows][kVectors];
  for (auto& row : sums) {
    for (VF32& sum : row) sum = hn::Zero(d);
  }
  for (std::int64_t k = 0; k < count; ++k) {
    VF32 line[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      const float* const at = b + k * ld + static_cast<std::int64_t>(kLanes) * i;
      line[i] = kVectors > 1 ? hn::LoadU(d, at) : LoadFloats(d, at, left);
    }
    for (int row = 0; row < kRows; ++row) {
      const VF32 by = hn::Set(d, a[row * row_step + k * k_step]);
      for (int i = 0; i < kVectors; ++i) sums[row][i] = hn::MulAdd(by, line[i], sums[row][i]);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) finish(row, i, sums[row][i]);
  }
}

// a (rows, k) b (k, cols), where a(r, k) is a[r * row_step + k * k_step]. Four rows from r on have
// counts(r) elements. `finish(row, col, left, sum)` gets a vector of sums, of which `left` columns
// count, row by row.
template <class Counts, class Finish>
void MultiplyRows(std::int64_t rows, std::int64_t cols, const float* a, std::int64_t row_step,
                  std::int64_t k_step, const float* b, std::int64_t ld, Counts&& counts,
                  Finish&& finish) {
  constexpr auto kWide = static_cast<std::int64_t>(kLanes);
  for (std::int64_t col = 0; col < cols;) {
    const bool pair = col + 2 * kWide <= cols;
    const auto left = static_cast<std::size_t>(cols - col);
    for (std::int64_t row = 0; row < rows;) {
      const bool four = row + 4 <= rows;
      const float* const from = a + row * row_step;
      const std::int64_t count = counts(row);
      const auto done = [&](int r, int i, VF32 sum) {
        finish(row + r, col + kWide * i, left - kLanes * static_cast<std::size_t>(i), sum);
      };
      if (four && pair) {
        MultiplyTile<4, 2>(from, row_step, k_step, b + col, ld, count, left, done);
      } else if (four) {
        MultiplyTile<4, 1>(from, row_step, k_step, b + col, ld, count, left, done);
      } else if (pair) {
        MultiplyTile<1, 2>(from, row_step, k_step, b + col, ld, count, left, done);
      } else {
        MultiplyTile<1, 1>(from, row_step, k_step, b + col, ld, count, left, done);
      }
      row += four ? 4 : 1;
    }
    col += pair ? 2 * kWide : kWide;
  }
}

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

  DeltaScratch(float* at, std::int64_t key_dim, std::int64_t value_dim) {
    const auto take = [&](std::int64_t count) { return std::exchange(at, at + count); };
    keys = take(kChunk * key_dim), queries = take(kChunk * key_dim);
    keys_by_element = take(kChunk * key_dim);
    decays = take(kChunk * kChunk), learnt = take(kChunk * kChunk), scores = take(kChunk * kChunk);
    changes = take(kChunk * value_dim), kept = take(kChunk), by = take(kChunk);
  }
};

// Tokens [first, first + count) of a head, whose state changes in place; `fresh`: it is zero.
inline void DeltaChunk(const ops::GatedDeltaArgs& args, std::int64_t head, std::int64_t first,
                       std::int64_t count, bool fresh, float* state, const DeltaScratch& s) {
  constexpr std::int64_t kChunk = DeltaScratch::kChunk;
  const F32 d;
  const std::int64_t keys = args.params.key_dim, values = args.params.value_dim;
  const std::int64_t padded = (count + 3) / 4 * 4;
  const auto store = [&](VF32 v, float* to, std::size_t left) {
    StoreRow(d, v, DataType::kFloat32, to, left);
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
  // What tokens have to do with each other.
  const auto all_keys = [&](std::int64_t) { return keys; };
  for (const bool of_queries : {false, true}) {
    float* const to = of_queries ? s.scores : s.learnt;
    MultiplyRows(padded, padded, of_queries ? s.queries : s.keys, keys, 1, s.keys_by_element,
                 kChunk, all_keys, [&](std::int64_t t, std::int64_t i, std::size_t left, VF32 sum) {
                   store(sum, to + t * kChunk + i, left);
                 });
    for (std::int64_t t = 0; t < padded; ++t) {
      const std::int64_t end = t < count ? (of_queries ? t + 1 : t) : 0;
      float* const line = to + t * kChunk;
      const float by = of_queries ? 1.0f : s.by[t];
      for (std::int64_t i = 0; i < end; ++i) line[i] *= by * s.decays[t * kChunk + i];
      std::fill(line + end, line + padded, 0.0f);
    }
  }
  // What the state knows of keys and queries.
  if (fresh) {
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t j = 0; j < values; ++j) s.changes[t * values + j] *= s.by[t];
    }
  } else {
    MultiplyRows(count, values, s.keys, keys, 1, state, values, all_keys,
                 [&](std::int64_t t, std::int64_t j, std::size_t left, VF32 known) {
                   float* const at = s.changes + t * values + j;
                   const VF32 error =
                       hn::NegMulAdd(known, hn::Set(d, s.kept[t]), LoadFloats(d, at, left));
                   store(hn::Mul(error, hn::Set(d, s.by[t])), at, left);
                 });
  }
  // Solves (1 + A) changes = errors, four rows at a time.
  for (std::int64_t t = 0; t < padded; t += 4) {
    const float* const lines = s.learnt + t * kChunk;
    float* const own = s.changes + t * values;
    MultiplyRows(
        4, values, lines, kChunk, 1, s.changes, values, [&](std::int64_t) { return t; },
        [&](std::int64_t r, std::int64_t j, std::size_t left, VF32 sum) {
          float* const at = own + r * values + j;
          VF32 change = hn::Sub(LoadFloats(d, at, left), sum);
          for (std::int64_t i = 0; i < r; ++i) {
            change = hn::NegMulAdd(hn::Set(d, lines[r * kChunk + t + i]),
                                   LoadFloats(d, own + i * values + j, left), change);
          }
          store(change, at, left);
        });
  }
  const auto out = [&](std::int64_t t) {
    return args.out + (first + t) * args.params.out_cols() + head * values;
  };
  if (!fresh) {
    MultiplyRows(count, values, s.queries, keys, 1, state, values, all_keys,
                 [&](std::int64_t t, std::int64_t j, std::size_t left, VF32 known) {
                   store(hn::Mul(known, hn::Set(d, s.kept[t])), out(t) + j, left);
                 });
  }
  MultiplyRows(
      count, values, s.scores, kChunk, 1, s.changes, values,
      [&](std::int64_t t) { return std::min(t + 4, padded); },
      [&](std::int64_t t, std::int64_t j, std::size_t left, VF32 sum) {
        float* const at = out(t) + j;
        store(fresh ? sum : hn::Add(sum, LoadFloats(d, at, left)), at, left);
      });
  // The next state.
  const float* const last = s.decays + (count - 1) * kChunk;
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t j = 0; j < values; ++j) s.changes[t * values + j] *= last[t];
  }
  const VF32 kept = hn::Set(d, s.kept[count - 1]);
  MultiplyRows(
      keys, values, s.keys, 1, keys, s.changes, values, [&](std::int64_t) { return count; },
      [&](std::int64_t i, std::int64_t j, std::size_t left, VF32 sum) {
        float* const at = state + i * values + j;
        store(hn::MulAdd(kept, LoadFloats(d, at, left), sum), at, left);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // CULET_LINEAR_CHUNKS_INL_H_
