// The register tiles of attention: scores, softmax in steps, weighed values, and the sum of two
// parts. Lanes run along the head, in the decoder's order: keys and values may lie as the cache has
// them or converted, the sums' bits are the same.
#if defined(CULET_OPS_ATTENTION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_OPS_ATTENTION_MATH_INL_H_
#undef CULET_OPS_ATTENTION_MATH_INL_H_
#else
#define CULET_OPS_ATTENTION_MATH_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/simd_decode-inl.h"
#include "kernels/cpu/simd_exp-inl.h"
#include "kernels/cpu/simd_plain.h"
#include "kernels/ops/attention_tile.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

using ops::kKeyBlock;

// Queries of a register tile: with four keys, or four vectors of values, its sums fit 32 registers.
inline constexpr int kTileQueries =
    (HWY_TARGET & (HWY_AVX3 | HWY_AVX3_DL | HWY_NEON | HWY_PPC8)) != 0 ? 4 : 2;
inline constexpr int kTileKeys = 4;
inline constexpr int kTileColumns = 4;

// Codes of a cache, in natural order, NaN included; their scales are the caller's.
struct DecodeCodes {
  using T = std::uint8_t;
  using Raw = VF32;
  static constexpr std::size_t kVectors = 1;
  static HWY_INLINE Raw Load(F32 d, const T* HWY_RESTRICT p) { return FromE4m3(d, p); }
  template <int kVector>
  static HWY_INLINE VF32 Get(F32, const Raw& raw) {
    return raw;
  }
  static constexpr std::size_t Source(std::size_t, std::size_t lane) { return lane; }
};

// Elements that a decoder takes together.
template <class Decoder>
inline constexpr std::size_t kDecoderGroup = Decoder::kVectors* kLanes;

// The position of element i of a head in the decoder's order, from the group's beginning.
template <class Decoder, class F>
void ForElements(std::size_t count, F function) {
  constexpr std::size_t kGroup = kDecoderGroup<Decoder>;
  for (std::size_t g = 0; g < count; g += kGroup) {
    for (std::size_t v = 0; v < Decoder::kVectors; ++v) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::size_t i = g + Decoder::Source(v, lane);
        if (i < count) function(i, g + v * kLanes + lane);
      }
    }
  }
}

// `count` elements as floats in the decoder's order, zeros up to `padded`.
template <class Decoder>
void ConvertLine(const typename Decoder::T* HWY_RESTRICT in, std::size_t count, std::size_t padded,
                 float* HWY_RESTRICT out) {
  using T = typename Decoder::T;
  const F32 d;
  constexpr std::size_t kGroup = kDecoderGroup<Decoder>;
  for (std::size_t i = 0; i < padded; i += kGroup) {
    alignas(64) T rest[kGroup] = {};
    const T* from = in + i;
    if (i + kGroup > count) {
      if (i < count) std::memcpy(rest, in + i, (count - i) * sizeof(T));
      from = rest;
    }
    const typename Decoder::Raw raw = Decoder::Load(d, from);
    hn::StoreU(Decoder::template Get<0>(d, raw), d, out + i);
    if constexpr (Decoder::kVectors == 2) {
      hn::StoreU(Decoder::template Get<1>(d, raw), d, out + i + kLanes);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR

// Tiles in four lanes of plain C++ all the same; elements then lie in natural order.
using TileF32 = PlainF32x4;
inline constexpr std::size_t kTileLanes = kPlainLanes;
HWY_INLINE TileF32 TileZero() { return TileF32{}; }
HWY_INLINE TileF32 TileSet(float x) { return PlainSet4(x); }
HWY_INLINE TileF32 TileLoad(const float* HWY_RESTRICT p) { return PlainLoad4(p); }
HWY_INLINE void TileStore(TileF32 v, float* HWY_RESTRICT p) { PlainStore4(v, p); }
HWY_INLINE TileF32 TileAdd(TileF32 a, TileF32 b) { return a + b; }
HWY_INLINE TileF32 TileSub(TileF32 a, TileF32 b) { return a - b; }
HWY_INLINE TileF32 TileMax(TileF32 a, TileF32 b) { return PlainMax(a, b); }
HWY_INLINE TileF32 TileMulAdd(TileF32 a, TileF32 b, TileF32 c) { return a * b + c; }
HWY_INLINE TileF32 TileExp(TileF32 x) { return PlainExp(x); }
HWY_INLINE float TileSumOfLanes(TileF32 v) { return PlainSum(v); }
HWY_INLINE float TileMaxOfLanes(TileF32 v) {
  return std::max(std::max(v[0], v[1]), std::max(v[2], v[3]));
}

// Vectors of a group of a tile.
template <class Decoder>
inline constexpr int kTileVectors = std::is_same_v<Decoder, DecodeBf16> ? 2 : 1;

template <class Decoder>
HWY_INLINE void LoadGroup(const typename Decoder::T* HWY_RESTRICT p,
                          TileF32 (&out)[kTileVectors<Decoder>]) {
  if constexpr (std::is_same_v<Decoder, DecodeF32>) {
    out[0] = PlainLoad4(p);
  } else if constexpr (std::is_same_v<Decoder, DecodeBf16>) {
    PlainBfloat16x8(p, out);
  } else {
    const F32 d;
    for (std::size_t i = 0; i < kTileLanes; ++i) {
      out[0][i] = hn::GetLane(Decoder::template Get<0>(d, Decoder::Load(d, p + i)));
    }
  }
}

#else

using TileF32 = VF32;
inline constexpr std::size_t kTileLanes = kLanes;
HWY_INLINE TileF32 TileZero() { return hn::Zero(F32()); }
HWY_INLINE TileF32 TileSet(float x) { return hn::Set(F32(), x); }
HWY_INLINE TileF32 TileLoad(const float* HWY_RESTRICT p) { return hn::LoadU(F32(), p); }
HWY_INLINE void TileStore(TileF32 v, float* HWY_RESTRICT p) { hn::StoreU(v, F32(), p); }
HWY_INLINE TileF32 TileAdd(TileF32 a, TileF32 b) { return hn::Add(a, b); }
HWY_INLINE TileF32 TileSub(TileF32 a, TileF32 b) { return hn::Sub(a, b); }
HWY_INLINE TileF32 TileMax(TileF32 a, TileF32 b) { return hn::Max(a, b); }
HWY_INLINE TileF32 TileMulAdd(TileF32 a, TileF32 b, TileF32 c) { return hn::MulAdd(a, b, c); }
HWY_INLINE TileF32 TileExp(TileF32 x) { return ExpOf(F32(), x); }
HWY_INLINE float TileSumOfLanes(TileF32 v) { return hn::GetLane(hn::SumOfLanes(F32(), v)); }
HWY_INLINE float TileMaxOfLanes(TileF32 v) { return hn::GetLane(hn::MaxOfLanes(F32(), v)); }

template <class Decoder>
inline constexpr int kTileVectors = static_cast<int>(Decoder::kVectors);

// A group of a line as FP32.
template <class Decoder>
HWY_INLINE void LoadGroup(const typename Decoder::T* HWY_RESTRICT p,
                          TileF32 (&out)[kTileVectors<Decoder>]) {
  const F32 d;
  const typename Decoder::Raw raw = Decoder::Load(d, p);
  out[0] = Decoder::template Get<0>(d, raw);
  if constexpr (Decoder::kVectors == 2) out[1] = Decoder::template Get<1>(d, raw);
}

#endif

// Elements of a group of a tile.
template <class Decoder>
inline constexpr std::size_t kTileGroup = kTileVectors<Decoder>* kTileLanes;

// out[j] = scale * the sum of v[j]'s lanes, for j < kCount <= 4. One by one or four at a time, a
// sum's bits are the same.
template <int kCount>
HWY_INLINE void StoreSumsOfLanes(const TileF32 (&v)[kCount], float scale, float* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR
  for (int j = 0; j < kCount; ++j) out[j] = scale * PlainSum(v[j]);
#else
  const F32 d;
  const hn::RepartitionToWide<F32> d64;
  const VF32 zero = hn::Zero(d);
  const auto pairs = [&](VF32 a, VF32 b) HWY_ATTR {
    return hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto low = pairs(v[0], kCount > 1 ? v[kCount > 1 ? 1 : 0] : zero);
  const auto high = kCount > 2
                        ? pairs(v[kCount > 2 ? 2 : 0], kCount > 3 ? v[kCount > 3 ? 3 : 0] : zero)
                        : hn::Zero(d64);
  const VF32 sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, low, high)),
                            hn::BitCast(d, hn::InterleaveUpper(d64, low, high)));
  // Each block of four lanes has a part of all sums.
  alignas(64) float parts[kLanes];
  hn::Store(sums, d, parts);
  const hn::FixedTag<float, 4> d4;
  auto total = hn::Load(d4, parts);
  for (std::size_t i = 4; i < kLanes; i += 4) total = hn::Add(total, hn::Load(d4, parts + i));
  total = hn::Mul(total, hn::Set(d4, scale));
  if constexpr (kCount == 4) {
    hn::StoreU(total, d4, out);
  } else {
    hn::Store(total, d4, parts);
    for (int j = 0; j < kCount; ++j) out[j] = parts[j];
  }
#endif
}

// Lines of keys or values, and those that are read some lines later; null if unknown.
template <class T>
struct Lines {
  const T* const* at;
  const T* const* ahead;

  // Prefetches the line after line j at element i.
  HWY_INLINE void Prefetch(std::int64_t j, std::size_t i) const {
    // Groups of four lanes would ask for a line of memory several times.
    constexpr bool kOften = kTileLanes > 4;
    if (ahead != nullptr && (kOften || i * sizeof(T) % 64 == 0)) {
      __builtin_prefetch(ahead[j] + i, 0, 2);
    }
  }
};

// scores[q][j] = scale * query q . key first + j, for a register tile.
template <class Decoder, int kQueries, int kKeys>
HWY_INLINE void ScoreTile(const float* HWY_RESTRICT queries, Lines<typename Decoder::T> keys,
                          std::int64_t first, std::size_t padded, float scale,
                          float* HWY_RESTRICT scores) {
  constexpr int kVectors = kTileVectors<Decoder>;
  TileF32 sums[kQueries][kKeys];
  HWY_UNROLL(4)
  for (int q = 0; q < kQueries; ++q) {
    HWY_UNROLL(4)
    for (int j = 0; j < kKeys; ++j) sums[q][j] = TileZero();
  }
  for (std::size_t i = 0; i < padded; i += kTileGroup<Decoder>) {
    TileF32 key[kKeys][kVectors];
    HWY_UNROLL(4)
    for (int j = 0; j < kKeys; ++j) {
      keys.Prefetch(first + j, i);
      LoadGroup<Decoder>(keys.at[first + j] + i, key[j]);
    }
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      HWY_UNROLL(4)
      for (int q = 0; q < kQueries; ++q) {
        const TileF32 query = TileLoad(queries + static_cast<std::size_t>(q) * padded + i +
                                       static_cast<std::size_t>(v) * kTileLanes);
        HWY_UNROLL(4)
        for (int j = 0; j < kKeys; ++j) sums[q][j] = TileMulAdd(query, key[j][v], sums[q][j]);
      }
    }
  }
  HWY_UNROLL(4)
  for (int q = 0; q < kQueries; ++q) {
    StoreSumsOfLanes<kKeys>(sums[q], scale, scores + q * kKeyBlock + first);
  }
}

// The scores of keys [begin, end).
template <class Decoder, int kQueries>
HWY_INLINE void ScoreQueries(const float* HWY_RESTRICT queries, Lines<typename Decoder::T> keys,
                             std::int64_t begin, std::int64_t end, std::size_t padded, float scale,
                             float* HWY_RESTRICT scores) {
  std::int64_t j = begin;
  for (; j + kTileKeys <= end; j += kTileKeys) {
    ScoreTile<Decoder, kQueries, kTileKeys>(queries, keys, j, padded, scale, scores);
  }
  for (; j < end; ++j) ScoreTile<Decoder, kQueries, 1>(queries, keys, j, padded, scale, scores);
}

// sums[q] += the values of keys [begin, end), weighed: kGroups groups from element i on.
template <class Decoder, int kQueries, int kGroups>
HWY_INLINE void WeighTile(const float* HWY_RESTRICT weights, Lines<typename Decoder::T> values,
                          std::int64_t begin, std::int64_t end, std::size_t padded, std::size_t i,
                          float* HWY_RESTRICT sums) {
  constexpr int kVectors = kTileVectors<Decoder>;
  constexpr int kColumns = kGroups * kVectors;
  TileF32 total[kQueries][kColumns];
  HWY_UNROLL(4)
  for (int q = 0; q < kQueries; ++q) {
    HWY_UNROLL(4)
    for (int c = 0; c < kColumns; ++c) {
      total[q][c] = TileLoad(sums + static_cast<std::size_t>(q) * padded + i +
                             static_cast<std::size_t>(c) * kTileLanes);
    }
  }
  for (std::int64_t j = begin; j < end; ++j) {
    TileF32 value[kGroups][kVectors];
    HWY_UNROLL(4)
    for (int g = 0; g < kGroups; ++g) {
      const std::size_t at = i + static_cast<std::size_t>(g) * kTileGroup<Decoder>;
      values.Prefetch(j, at);
      LoadGroup<Decoder>(values.at[j] + at, value[g]);
    }
    HWY_UNROLL(4)
    for (int q = 0; q < kQueries; ++q) {
      const TileF32 weight = TileSet(weights[q * kKeyBlock + j]);
      HWY_UNROLL(4)
      for (int c = 0; c < kColumns; ++c) {
        total[q][c] = TileMulAdd(weight, value[c / kVectors][c % kVectors], total[q][c]);
      }
    }
  }
  HWY_UNROLL(4)
  for (int q = 0; q < kQueries; ++q) {
    HWY_UNROLL(4)
    for (int c = 0; c < kColumns; ++c) {
      TileStore(total[q][c], sums + static_cast<std::size_t>(q) * padded + i +
                                 static_cast<std::size_t>(c) * kTileLanes);
    }
  }
}

template <class Decoder, int kQueries>
HWY_INLINE void WeighValues(const float* HWY_RESTRICT weights, Lines<typename Decoder::T> values,
                            std::int64_t begin, std::int64_t end, std::size_t padded,
                            float* HWY_RESTRICT sums) {
  if (begin >= end) return;
  constexpr int kGroups = kTileColumns / kTileVectors<Decoder>;
  constexpr std::size_t kWide = kGroups * kTileGroup<Decoder>;
  std::size_t i = 0;
  for (; i + kWide <= padded; i += kWide) {
    WeighTile<Decoder, kQueries, kGroups>(weights, values, begin, end, padded, i, sums);
  }
  for (; i < padded; i += kTileGroup<Decoder>) {
    WeighTile<Decoder, kQueries, 1>(weights, values, begin, end, padded, i, sums);
  }
}

// The keys of a block that a query sees, counted from the block's begin.
struct Seen {
  std::int64_t begin, end;
};

// The values of keys [from, to) for some queries: together where all see a key, one by one before
// and after.
template <class Decoder, int kQueries>
void WeighSome(const float* weights, Lines<typename Decoder::T> values, const Seen* seen,
               std::int64_t from, std::int64_t to, std::size_t padded, float* sums) {
  std::int64_t begin = from, end = to;
  for (int q = 0; q < kQueries; ++q) {
    begin = std::max(begin, seen[q].begin);
    end = std::min(end, seen[q].end);
  }
  const bool together = begin < end;
  for (int q = 0; q < kQueries; ++q) {
    const std::int64_t last = std::min(to, seen[q].end);
    WeighValues<Decoder, 1>(weights + q * kKeyBlock, values, std::max(from, seen[q].begin),
                            together ? begin : last, padded,
                            sums + static_cast<std::size_t>(q) * padded);
  }
  if (!together) return;
  WeighValues<Decoder, kQueries>(weights, values, begin, end, padded, sums);
  for (int q = 0; q < kQueries; ++q) {
    WeighValues<Decoder, 1>(weights + q * kKeyBlock, values, end, std::min(to, seen[q].end), padded,
                            sums + static_cast<std::size_t>(q) * padded);
  }
}

HWY_INLINE void Scale(F32 d, float factor, std::size_t count, float* HWY_RESTRICT values) {
  const VF32 f = hn::Set(d, factor);
  for (std::size_t i = 0; i < count; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), f), d, values + i);
  }
}

// Turns scores of visible keys into weights and rescales earlier sums to the new maximum.
inline void SoftmaxStep(float* HWY_RESTRICT scores, Seen seen, std::size_t padded, float& most,
                        float& weight, float* HWY_RESTRICT sums) {
  if (seen.begin >= seen.end) return;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::fill(scores, scores + seen.begin, kNone);
  std::fill(scores + seen.end, scores + kKeyBlock, kNone);
  TileF32 largest = TileSet(kNone);
  for (std::size_t j = 0; j < kKeyBlock; j += kTileLanes) {
    largest = TileMax(largest, TileLoad(scores + j));
  }
  const float before = most;
  most = std::max(before, TileMaxOfLanes(largest));
  if (before != most) {
    const float shrink = std::exp(before - most);
    weight *= shrink;
    Scale(F32(), shrink, padded, sums);
  }
  const TileF32 top = TileSet(most);
  TileF32 total = TileZero();
  for (std::size_t j = 0; j < kKeyBlock; j += kTileLanes) {
    const TileF32 share = TileExp(TileSub(TileLoad(scores + j), top));
    TileStore(share, scores + j);
    total = TileAdd(total, share);
  }
  weight += TileSumOfLanes(total);
}

// A query's softmax over some keys, not divided yet.
struct Part {
  float most;    // the largest score
  float weight;  // the sum of the weights, exp(score - most)
  float* sums;   // of the weighed values
};

// `total` becomes that of its keys and of `part`'s.
inline void AddPart(Part& total, const Part& part, std::size_t padded) {
  const F32 d;
  const float most = std::max(total.most, part.most);
  const float old_share = std::exp(total.most - most), share = std::exp(part.most - most);
  const VF32 of_old = hn::Set(d, old_share), of_new = hn::Set(d, share);
  for (std::size_t i = 0; i < padded; i += kLanes) {
    const VF32 old = hn::Mul(of_old, hn::LoadU(d, total.sums + i));
    hn::StoreU(hn::MulAdd(of_new, hn::LoadU(d, part.sums + i), old), d, total.sums + i);
  }
  total.weight = total.weight * old_share + part.weight * share;
  total.most = most;
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
