// The tiles of simd_skinny-inl.h for E4M3 where there are no SIMD targets: decoded to four lanes at
// a time, because a look-up a code and one chain of sums a column are slower than memory.
#if defined(CULET_SIMD_SKINNY_PLAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_SKINNY_PLAIN_INL_H_
#undef CULET_SIMD_SKINNY_PLAIN_INL_H_
#else
#define CULET_SIMD_SKINNY_PLAIN_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd_decode-inl.h"
#include "kernels/cpu/simd_plain.h"

#if HWY_TARGET == HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// Weights come with 2^-120 of their value. The largest activation, 448, may be multiplied by 2^119
// before it leaves FP32's range; so sums are half of what they should be, and exact otherwise.
struct DecodePlainE4m3 : DecodeE4m3 {
  static constexpr float kActivationScale = 0x1p119f;
  static constexpr float kSumScale = 2.0f;
  static constexpr std::size_t kVectors = 16;  // codes, and lanes are one: decoded together
};

// A look-up a code, for codes that PlainE4m3x16 refuses.
HWY_NOINLINE inline void LookUpCodes(const std::uint8_t* HWY_RESTRICT codes, PlainF32x4 (&to)[4]) {
  for (int i = 0; i < 16; ++i) to[i / kPlainLanes][i % kPlainLanes] = kE4m3Values.of[codes[i]];
}

// accumulators[r][c] += A's row r times 16 codes of column c.
template <int kRows, int kCols>
HWY_INLINE void MultiplyPlainGroup(const float* HWY_RESTRICT a, std::size_t a_stride,
                                   const std::uint8_t* const HWY_RESTRICT* columns, std::size_t k,
                                   PlainF32x4 (&accumulators)[kRows][kCols]) {
  HWY_UNROLL(4)
  for (int c = 0; c < kCols; ++c) {
    PlainF32x4 w[4] = {};  // written wherever it is read, which GCC 12 does not see
    const bool common = PlainE4m3x16(columns[c] + k, w);
    PlainF32x4 rare_w[4];
    if (HWY_UNLIKELY(!common)) LookUpCodes(columns[c] + k, rare_w);
    HWY_UNROLL(4)
    for (int v = 0; v < 4; ++v) {
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        const PlainF32x4 x =
            PlainLoad4(a + static_cast<std::size_t>(r) * a_stride + v * kPlainLanes);
        // The same bits either way: only powers of two differ.
        accumulators[r][c] +=
            HWY_LIKELY(common) ? x * w[v] : x * PlainSet4(0x1p-119f) * (rare_w[v] * 0.5f);
      }
    }
  }
}

// accumulators[r][c] = A's row r times column c over [begin, end) of k.
template <int kRows, int kCols>
HWY_INLINE void MultiplyPlainBlock(const float* HWY_RESTRICT a, std::size_t a_stride,
                                   const std::uint8_t* const HWY_RESTRICT* columns,
                                   std::size_t begin, std::size_t end, std::size_t ahead,
                                   PlainF32x4 (&accumulators)[kRows][kCols]) {
  constexpr std::size_t kStep = DecodePlainE4m3::kVectors;
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int c = 0; c < kCols; ++c) accumulators[r][c] = PlainF32x4{};
  }
  std::size_t i = begin;
  for (; i + kStep <= end; i += kStep) {
    HWY_UNROLL(4)
    for (int c = 0; c < kCols; ++c) __builtin_prefetch(columns[c] + i + ahead, 0, 2);
    MultiplyPlainGroup<kRows, kCols>(a + i, a_stride, columns, i, accumulators);
  }
  if (i < end) {  // nothing is read behind a column's end
    alignas(16) std::uint8_t rest[kCols][kStep] = {};
    const std::uint8_t* rests[kCols];
    for (int c = 0; c < kCols; ++c) {
      std::memcpy(rest[c], columns[c] + i, end - i);
      rests[c] = rest[c];
    }
    MultiplyPlainGroup<kRows, kCols>(a + i, a_stride, rests, 0, accumulators);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();
#endif  // HWY_SCALAR

#endif  // per-target guard
