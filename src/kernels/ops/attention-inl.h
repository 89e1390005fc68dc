// Attention of some queries that share a key-value head: keys pass by in blocks, with a running
// maximum, so that no row of scores is ever stored. Lanes run along the head.
//
// A query's bits do not depend on the queries beside it: blocks begin at multiples of kKeyBlock,
// and every sum runs in the same order whatever the tile.
#if defined(CULET_OPS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_OPS_ATTENTION_INL_H_
#undef CULET_OPS_ATTENTION_INL_H_
#else
#define CULET_OPS_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cpu/simd_memory-inl.h"
#include "kernels/ops/attention_tile.h"
#include "kernels/ops/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

using ops::kKeyBlock;

// Queries of a register tile: with four keys, or four vectors of values, its sums fit 32 registers.
inline constexpr int kTileQueries =
    (HWY_TARGET & (HWY_AVX3 | HWY_AVX3_DL | HWY_NEON | HWY_PPC8)) != 0 ? 4 : 2;
inline constexpr int kTileColumns = 4;

// `count` elements as floats, zeros up to `padded`.
template <DataType kType>
inline void LoadPaddedAs(const std::byte* data, std::size_t count, std::size_t padded,
                         float* HWY_RESTRICT out) {
  const F32 d;
  constexpr std::size_t kSize = SizeOf(kType);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(LoadFull(d, kType, data + i * kSize), d, out + i);
  }
  if (i < count) {
    hn::StoreU(LoadRow(d, kType, data + i * kSize, count - i), d, out + i);
    i += kLanes;
  }
  for (; i < padded; i += kLanes) hn::StoreU(hn::Zero(d), d, out + i);
}

inline void LoadPadded(DataType type, const void* data, std::int64_t first, std::size_t count,
                       std::size_t padded, float* HWY_RESTRICT out) {
  const auto* const bytes =
      static_cast<const std::byte*>(data) + first * static_cast<std::int64_t>(SizeOf(type));
  switch (type) {
    case DataType::kFloat16:
      return LoadPaddedAs<DataType::kFloat16>(bytes, count, padded, out);
    case DataType::kBfloat16:
      return LoadPaddedAs<DataType::kBfloat16>(bytes, count, padded, out);
    default:
      return LoadPaddedAs<DataType::kFloat32>(bytes, count, padded, out);
  }
}

// scores[q][j] = scale * query q . key j, for a register tile.
template <int kQueries, int kKeys>
HWY_INLINE void ScoreTile(const float* HWY_RESTRICT queries, const float* const* keys,
                          std::size_t padded, float scale, float* HWY_RESTRICT scores) {
  const F32 d;
  VF32 sums[kQueries][kKeys];
  HWY_UNROLL(4)
  for (int q = 0; q < kQueries; ++q) {
    HWY_UNROLL(4)
    for (int j = 0; j < kKeys; ++j) sums[q][j] = hn::Zero(d);
  }
  for (std::size_t i = 0; i < padded; i += kLanes) {
    VF32 key[kKeys];
    HWY_UNROLL(4)
    for (int j = 0; j < kKeys; ++j) key[j] = hn::LoadU(d, keys[j] + i);
    HWY_UNROLL(4)
    for (int q = 0; q < kQueries; ++q) {
      const VF32 query = hn::LoadU(d, queries + static_cast<std::size_t>(q) * padded + i);
      HWY_UNROLL(4)
      for (int j = 0; j < kKeys; ++j) sums[q][j] = hn::MulAdd(query, key[j], sums[q][j]);
    }
  }
  HWY_UNROLL(4)
  for (int q = 0; q < kQueries; ++q) {
    HWY_UNROLL(4)
    for (int j = 0; j < kKeys; ++j) {
      scores[q * kKeyBlock + j] = scale * hn::GetLane(hn::SumOfLanes(d, sums[q][j]));
    }
  }
}

template <int kQueries>
HWY_INLINE void ScoreQueries(const float* HWY_RESTRICT queries, const float* const* keys,
                             std::int64_t count, std::size_t padded, float scale,
                             float* HWY_RESTRICT scores) {
  std::int64_t j = 0;
  for (; j + kTileColumns <= count; j += kTileColumns) {
    ScoreTile<kQueries, kTileColumns>(queries, keys + j, padded, scale, scores + j);
  }
  for (; j < count; ++j) ScoreTile<kQueries, 1>(queries, keys + j, padded, scale, scores + j);
}

// sums[q] += the values of keys [begin, end), weighed; columns i of kColumns vectors.
template <int kQueries, int kColumns>
HWY_INLINE void WeighTile(const float* HWY_RESTRICT weights, const float* const* values,
                          std::int64_t begin, std::int64_t end, std::size_t padded, std::size_t i,
                          float* HWY_RESTRICT sums) {
  const F32 d;
  VF32 total[kQueries][kColumns];
  HWY_UNROLL(4)
  for (int q = 0; q < kQueries; ++q) {
    HWY_UNROLL(4)
    for (int c = 0; c < kColumns; ++c) {
      total[q][c] = hn::LoadU(d, sums + static_cast<std::size_t>(q) * padded + i +
                                     static_cast<std::size_t>(c) * kLanes);
    }
  }
  for (std::int64_t j = begin; j < end; ++j) {
    VF32 value[kColumns];
    HWY_UNROLL(4)
    for (int c = 0; c < kColumns; ++c) {
      value[c] = hn::LoadU(d, values[j] + i + static_cast<std::size_t>(c) * kLanes);
    }
    HWY_UNROLL(4)
    for (int q = 0; q < kQueries; ++q) {
      const VF32 weight = hn::Set(d, weights[q * kKeyBlock + j]);
      HWY_UNROLL(4)
      for (int c = 0; c < kColumns; ++c) {
        total[q][c] = hn::MulAdd(weight, value[c], total[q][c]);
      }
    }
  }
  HWY_UNROLL(4)
  for (int q = 0; q < kQueries; ++q) {
    HWY_UNROLL(4)
    for (int c = 0; c < kColumns; ++c) {
      hn::StoreU(
          total[q][c], d,
          sums + static_cast<std::size_t>(q) * padded + i + static_cast<std::size_t>(c) * kLanes);
    }
  }
}

template <int kQueries>
HWY_INLINE void WeighValues(const float* HWY_RESTRICT weights, const float* const* values,
                            std::int64_t begin, std::int64_t end, std::size_t padded,
                            float* HWY_RESTRICT sums) {
  if (begin >= end) return;
  constexpr std::size_t kWide = kTileColumns * kLanes;
  std::size_t i = 0;
  for (; i + kWide <= padded; i += kWide) {
    WeighTile<kQueries, kTileColumns>(weights, values, begin, end, padded, i, sums);
  }
  for (; i < padded; i += kLanes) {
    WeighTile<kQueries, 1>(weights, values, begin, end, padded, i, sums);
  }
}

// The keys of a block that a query sees, counted from the block's begin.
struct Seen {
  std::int64_t begin, end;
};

// The values of some queries: together where all see a key, one by one before and after.
template <int kQueries>
void WeighSome(const float* weights, const float* const* values, const Seen* seen,
               std::size_t padded, float* sums) {
  std::int64_t begin = 0, end = kKeyBlock;
  for (int q = 0; q < kQueries; ++q) {
    begin = std::max(begin, seen[q].begin);
    end = std::min(end, seen[q].end);
  }
  const bool together = begin < end;
  for (int q = 0; q < kQueries; ++q) {
    WeighValues<1>(weights + q * kKeyBlock, values, seen[q].begin, together ? begin : seen[q].end,
                   padded, sums + static_cast<std::size_t>(q) * padded);
  }
  if (!together) return;
  WeighValues<kQueries>(weights, values, begin, end, padded, sums);
  for (int q = 0; q < kQueries; ++q) {
    WeighValues<1>(weights + q * kKeyBlock, values, end, seen[q].end, padded,
                   sums + static_cast<std::size_t>(q) * padded);
  }
}

// Scores of the keys seen become weights; what was summed before shrinks to the new maximum.
inline void SoftmaxStep(float* HWY_RESTRICT scores, Seen seen, std::size_t padded, float& most,
                        float& weight, float* HWY_RESTRICT sums) {
  if (seen.begin >= seen.end) return;
  const F32 d;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::fill(scores, scores + seen.begin, kNone);
  std::fill(scores + seen.end, scores + kKeyBlock, kNone);
  VF32 largest = hn::Set(d, kNone);
  for (std::size_t j = 0; j < kKeyBlock; j += kLanes) {
    largest = hn::Max(largest, hn::LoadU(d, scores + j));
  }
  const float before = most;
  most = std::max(before, hn::GetLane(hn::MaxOfLanes(d, largest)));
  if (before != most) {
    const float shrink = std::exp(before - most);
    const VF32 factor = hn::Set(d, shrink);
    weight *= shrink;
    for (std::size_t i = 0; i < padded; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, sums + i), factor), d, sums + i);
    }
  }
  const VF32 top = hn::Set(d, most);
  VF32 total = hn::Zero(d);
  for (std::size_t j = 0; j < kKeyBlock; j += kLanes) {
    const VF32 share = ExpOrNaN(d, hn::Sub(hn::LoadU(d, scores + j), top));
    hn::StoreU(share, d, scores + j);
    total = hn::Add(total, share);
  }
  weight += hn::GetLane(hn::SumOfLanes(d, total));
}

// The keys of one block: begin and end, and which of them each query sees.
struct BlockOfKeys {
  std::int64_t begin, end;
  const float* lines[kKeyBlock];
  Seen seen[ops::kTaskQueries];
};

// Queries [first, last) score the block's keys, which stand in its lines, for head `head` of those.
inline void ScoreBlock(const ops::AttentionScratch& scratch, const BlockOfKeys& block, float scale,
                       int first, int last, int head) {
  const std::size_t padded = scratch.padded_head;
  const float* lines[kKeyBlock];
  for (std::int64_t j = block.begin; j < block.end; ++j) {
    lines[j] = block.lines[j] + static_cast<std::size_t>(head) * padded;
  }
  int q = first;
  const auto score = [&]<int kQueries>(std::integral_constant<int, kQueries>) {
    for (; q + kQueries <= last; q += kQueries) {
      ScoreQueries<kQueries>(scratch.queries + static_cast<std::size_t>(q) * padded,
                             lines + block.begin, block.end - block.begin, padded, scale,
                             scratch.scores + q * kKeyBlock + block.begin);
    }
  };
  score(std::integral_constant<int, kTileQueries>());
  score(std::integral_constant<int, 2>());
  score(std::integral_constant<int, 1>());
  for (q = first; q < last; ++q) {
    SoftmaxStep(scratch.scores + q * kKeyBlock, block.seen[q], padded, scratch.most[q],
                scratch.weights[q], scratch.sums + static_cast<std::size_t>(q) * padded);
  }
}

// The same queries add the block's values, which stand in its lines now.
inline void WeighBlock(const ops::AttentionScratch& scratch, const BlockOfKeys& block, int first,
                       int last, int head) {
  const std::size_t padded = scratch.padded_head;
  const float* lines[kKeyBlock];
  for (std::int64_t j = block.begin; j < block.end; ++j) {
    lines[j] = block.lines[j] + static_cast<std::size_t>(head) * padded;
  }
  int q = first;
  const auto weigh = [&]<int kQueries>(std::integral_constant<int, kQueries>) {
    for (; q + kQueries <= last; q += kQueries) {
      WeighSome<kQueries>(scratch.scores + q * kKeyBlock, lines, block.seen + q, padded,
                          scratch.sums + static_cast<std::size_t>(q) * padded);
    }
  };
  weigh(std::integral_constant<int, kTileQueries>());
  weigh(std::integral_constant<int, 2>());
  weigh(std::integral_constant<int, 1>());
}

inline void AttendTile(const ops::AttentionArgs& args, const AttentionRows& keys,
                       const ops::AttentionTile& tile) {
  const F32 d;
  const AttentionParams& p = args.params;
  const auto head_dim = static_cast<std::size_t>(p.head_dim);
  const ops::AttentionScratch scratch(p, tile.scratch);
  const std::size_t padded = scratch.padded_head;
  const int a_head = tile.queries_a_kv_head(), queries = tile.kv_heads * a_head;
  const std::int64_t kv_cols = std::int64_t{p.kv_heads} * p.head_dim;
  const std::int64_t kv_col = std::int64_t{tile.first_kv_head} * p.head_dim;
  const auto query_at = [&](int q) {
    return (tile.RowOf(q) * p.heads + tile.HeadOf(q)) * p.head_dim;
  };
  const auto of_query = [&](float* part, int q) {
    return part + static_cast<std::size_t>(q) * padded;
  };

  AttentionRows::Range ranges[ops::kTaskQueries];
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
  for (int q = 0; q < queries; ++q) {
    ranges[q] = keys.Of(tile.RowOf(q));
    first = std::min(first, ranges[q].first);
    last = std::max(last, ranges[q].last);
    LoadPadded(DataType::kFloat32, args.q, query_at(q), head_dim, padded,
               of_query(scratch.queries, q));
  }
  std::fill_n(scratch.sums, static_cast<std::size_t>(queries) * padded, 0.0f);
  std::fill_n(scratch.most, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch.weights, queries, 0.0f);

  // Rows of K or V, read where they are when vectors fit them. A block outside the cache is NaN,
  // and so is what sees it.
  const bool fits = padded == head_dim, in_place = fits && args.kv_type == DataType::kFloat32;
  const auto heads = static_cast<std::size_t>(tile.kv_heads);
  BlockOfKeys block;
  std::int64_t places[kKeyBlock];
  const auto load = [&](const void* from) {
    for (std::int64_t j = block.begin; j < block.end; ++j) {
      const std::int64_t at = places[j] * kv_cols + kv_col;
      float* const line = scratch.lines + static_cast<std::size_t>(j) * heads * padded;
      block.lines[j] = line;
      if (places[j] < 0) {
        std::fill_n(line, heads * padded, std::numeric_limits<float>::quiet_NaN());
      } else if (in_place) {
        block.lines[j] = static_cast<const float*>(from) + at;
      } else if (fits) {
        LoadPadded(args.kv_type, from, at, heads * padded, heads * padded, line);
      } else {
        for (std::size_t h = 0; h < heads; ++h) {
          LoadPadded(args.kv_type, from, at + static_cast<std::int64_t>(h * head_dim), head_dim,
                     padded, line + h * padded);
        }
      }
    }
  };

  for (std::int64_t start = first / kKeyBlock * kKeyBlock; start < last; start += kKeyBlock) {
    block.begin = std::max(first - start, std::int64_t{0});
    block.end = std::min(last - start, std::int64_t{kKeyBlock});
    for (std::int64_t j = block.begin; j < block.end; ++j) {
      places[j] = keys.KeyRow(ranges[0].sequence, start + j);
    }
    for (int q = 0; q < queries; ++q) {
      block.seen[q] = {std::clamp<std::int64_t>(ranges[q].first - start, 0, kKeyBlock),
                       std::clamp<std::int64_t>(ranges[q].last - start, 0, kKeyBlock)};
    }
    load(args.k);
    for (int head = 0; head < tile.kv_heads; ++head) {
      ScoreBlock(scratch, block, p.scale, head * a_head, (head + 1) * a_head, head);
    }
    load(args.v);
    for (int head = 0; head < tile.kv_heads; ++head) {
      WeighBlock(scratch, block, head * a_head, (head + 1) * a_head, head);
    }
  }
  for (int q = 0; q < queries; ++q) {
    const VF32 weight = hn::Set(d, scratch.weights[q]);
    const float* const sums = of_query(scratch.sums, q);
    float* const out = args.out + query_at(q);
    for (std::size_t i = 0; i < head_dim; i += kLanes) {
      StoreRow(d, hn::Div(hn::LoadU(d, sums + i), weight), DataType::kFloat32, out + i,
               head_dim - i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
