// Packing: weights of any type and order become FP32 panels, in which a row of k holds one value of
// each of the panel's columns.
#if defined(CULET_SIMD_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_PACK_INL_H_
#undef CULET_SIMD_PACK_INL_H_
#else
#define CULET_SIMD_PACK_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "culet/problem.h"
#include "kernels/cpu/simd_decode-inl.h"
#include "kernels/cpu/simd_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// One vector of a column's elements as they lie in memory.
template <class T>
HWY_INLINE VF32 LoadWords(F32 d, const T* HWY_RESTRICT p) {
#if HWY_TARGET == HWY_SCALAR
  float word;
  std::memcpy(&word, p, sizeof(word));
  return hn::Set(d, word);
#else
  const hn::Repartition<T, F32> dt;
  return hn::BitCast(d, hn::LoadU(dt, p));
#endif
}

// Lanes x lanes floats: row i goes in as v[i], column i comes out as v[i].
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void Transpose(F32, VF32 (&)[kLanes]) {}
#else
// Within 128 bits: v[4g + r] holds, in block b, lane 4b + r of rows 4g .. 4g + 3.
HWY_INLINE void TransposeInBlocks(F32 d, VF32* HWY_RESTRICT v) {
  const hn::RepartitionToWide<F32> d64;
  const auto pair_low = [&](VF32 a, VF32 b)
                            HWY_ATTR { return hn::BitCast(d64, hn::InterleaveLower(d, a, b)); };
  const auto pair_high = [&](VF32 a, VF32 b)
                             HWY_ATTR { return hn::BitCast(d64, hn::InterleaveUpper(d, a, b)); };
  const auto low01 = pair_low(v[0], v[1]), low23 = pair_low(v[2], v[3]);
  const auto high01 = pair_high(v[0], v[1]), high23 = pair_high(v[2], v[3]);
  v[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  v[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

HWY_INLINE void Transpose(F32 d, VF32 (&v)[kLanes]) {
  HWY_UNROLL(4)
  for (std::size_t g = 0; g < kLanes; g += 4) TransposeInBlocks(d, v + g);
    // Across blocks: a block matrix of kLanes / 4 x kLanes / 4, for each r.
#if HWY_MAX_BYTES == 32
  HWY_UNROLL(4)
  for (std::size_t r = 0; r < 4; ++r) {
    const VF32 a = v[r], b = v[4 + r];
    v[r] = hn::ConcatLowerLower(d, b, a);
    v[4 + r] = hn::ConcatUpperUpper(d, b, a);
  }
#elif HWY_MAX_BYTES == 64
  HWY_UNROLL(4)
  for (std::size_t r = 0; r < 4; ++r) {
    const VF32 a = v[r], b = v[4 + r], c = v[8 + r], e = v[12 + r];
    const VF32 ac_low = hn::ConcatLowerLower(d, c, a), be_low = hn::ConcatLowerLower(d, e, b);
    const VF32 ac_high = hn::ConcatUpperUpper(d, c, a), be_high = hn::ConcatUpperUpper(d, e, b);
    v[r] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(be_low), ac_low);
    v[4 + r] = hn::OddEvenBlocks(be_low, hn::SwapAdjacentBlocks(ac_low));
    v[8 + r] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(be_high), ac_high);
    v[12 + r] = hn::OddEvenBlocks(be_high, hn::SwapAdjacentBlocks(ac_high));
  }
#endif
}
#endif

// panel[i * width + c] for i < depth, rounded up to what a vector of one column holds, and
// c < Lanes(d): column c of `count` <= Lanes(d) columns that start `ld` elements apart. Missing
// columns and rows are zeros. Words of four bytes are transposed before they are decoded: narrow
// types need as few shuffles as they have words.
template <class Decoder>
void PackColumns(const typename Decoder::T* HWY_RESTRICT columns, std::int64_t ld,
                 std::size_t count, std::size_t depth, float* HWY_RESTRICT panel,
                 std::size_t width) {
  using T = typename Decoder::T;
  constexpr std::size_t kPerWord = sizeof(float) / sizeof(T);
  constexpr std::size_t kStep = kPerWord * kLanes;
  const F32 d;
  for (std::size_t i = 0; i < depth; i += kStep) {
    VF32 words[kLanes];
    if (HWY_LIKELY(count == kLanes && i + kStep <= depth)) {
      HWY_UNROLL(16)
      for (std::size_t c = 0; c < kLanes; ++c) {
        words[c] = LoadWords(d, columns + static_cast<std::int64_t>(c) * ld + i);
      }
    } else {
      alignas(64) T rest[kLanes][kStep] = {};
      const std::size_t left = std::min(kStep, depth - i);
      for (std::size_t c = 0; c < count; ++c) {
        std::memcpy(rest[c], columns + static_cast<std::int64_t>(c) * ld + i, left * sizeof(T));
      }
      HWY_UNROLL(16)
      for (std::size_t c = 0; c < kLanes; ++c) words[c] = LoadWords(d, rest[c]);
    }
    Transpose(d, words);
    HWY_UNROLL(16)
    for (std::size_t w = 0; w < kLanes; ++w) {
      VF32 rows[kPerWord];
      Decoder::DecodeWords(d, words[w], rows);
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < kPerWord; ++j) {
        hn::Store(rows[j], d, panel + (i + w * kPerWord + j) * width);
      }
    }
  }
}

// Prefetches a part of a matrix while something else is computed: `runs` stretches of `run_bytes`
// that start `stride` bytes apart.
class Prefetcher {
 public:
  Prefetcher(const void* base, std::int64_t stride, std::size_t runs, std::size_t run_bytes)
      : base_(static_cast<const std::byte*>(base)),
        stride_(stride),
        lines_a_run_((run_bytes + kLine - 1) / kLine),
        lines_(runs * lines_a_run_) {}

  std::size_t lines() const { return lines_; }

  // The next `count` cache lines, into the second-level cache: the first is full of panels.
  HWY_INLINE void Advance(std::size_t count) {
    const std::size_t end = std::min(next_ + count, lines_);
    for (; next_ < end; ++next_) {
      const auto run = static_cast<std::int64_t>(next_ / lines_a_run_);
      __builtin_prefetch(base_ + run * stride_ + next_ % lines_a_run_ * kLine, 0, 2);
    }
  }

 private:
  static constexpr std::size_t kLine = 64;
  const std::byte* base_;
  std::int64_t stride_;
  std::size_t lines_a_run_;
  std::size_t lines_;
  std::size_t next_ = 0;
};

// For weights whose columns are contiguous, with rows of k `ld` elements apart.
inline void PackRows(DataType type, const std::byte* HWY_RESTRICT rows, std::int64_t ld,
                     std::size_t count, std::size_t depth, float* HWY_RESTRICT panel,
                     std::size_t width) {
  const F32 d;
  const std::int64_t row_bytes = ld * static_cast<std::int64_t>(SizeOf(type));
  for (std::size_t i = 0; i < depth; ++i) {
    const VF32 v = LoadRow(d, type, rows + static_cast<std::int64_t>(i) * row_bytes, count);
    hn::Store(v, d, panel + i * width);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
