// Vectors of four floats in plain C++ (GCC's and Clang's vector types), for the level without SIMD
// targets: every compiler makes of them what its baseline has, SSE2 on x86-64.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace culet {

using PlainF32x4 = float __attribute__((vector_size(16)));
using PlainI32x4 = std::int32_t __attribute__((vector_size(16)));
using PlainU16x8 = std::uint16_t __attribute__((vector_size(16)));
using PlainU8x16 = std::uint8_t __attribute__((vector_size(16)));
using PlainU64x2 = std::uint64_t __attribute__((vector_size(16)));

inline constexpr int kPlainLanes = 4;

template <class V>
inline V PlainLoad(const void* from) noexcept {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

inline PlainF32x4 PlainLoad4(const float* from) noexcept { return PlainLoad<PlainF32x4>(from); }
inline void PlainStore4(PlainF32x4 v, float* to) noexcept { std::memcpy(to, &v, sizeof v); }
inline PlainF32x4 PlainSet4(float x) noexcept { return PlainF32x4{x, x, x, x}; }

/// The sum of the lanes, always in this order.
inline float PlainSum(PlainF32x4 v) noexcept { return (v[0] + v[2]) + (v[1] + v[3]); }

/// The larger of each lane; the second's where one is NaN.
inline PlainF32x4 PlainMax(PlainF32x4 a, PlainF32x4 b) noexcept { return a > b ? a : b; }

/// exp(x) for x <= 0, within 2e-7 of it; 0 below -87, where it would be subnormal; NaN stays NaN.
inline PlainF32x4 PlainExp(PlainF32x4 x) noexcept {
  // x = n ln 2 + r: 2^n is an exponent, exp(r) its Taylor sum, |r| <= 0.35. ln 2 is the sum of a
  // number whose products with n are exact, and the rest.
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  // Added to a small number it leaves the nearest integer in the lowest bits.
  constexpr float kToInteger = 12582912.0f;
  const PlainF32x4 shifted = x * kLog2E + kToInteger;
  const PlainF32x4 n = shifted - kToInteger;
  const PlainF32x4 r = (x - n * kLn2High) - n * kLn2Low;
  PlainF32x4 sum = r * (1.0f / 5040) + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  // Without signs: where x is too small the sum of the bits is none, and not used.
  using Bits = std::uint32_t __attribute__((vector_size(16)));
  const Bits power = std::bit_cast<Bits>(shifted) << 23;
  const auto scaled = std::bit_cast<PlainF32x4>(std::bit_cast<Bits>(sum) + power);
  const PlainF32x4 value = x < -87.0f ? PlainF32x4{} : scaled;
  return x == x ? value : x;
}

// Elements behind zeros are their codes in the upper half of a lane twice as wide, in natural
// order.
static_assert(std::endian::native == std::endian::little);

/// Eight bfloat16 as two vectors.
inline void PlainBfloat16x8(const std::uint16_t* from, PlainF32x4 (&to)[2]) noexcept {
  const PlainU16x8 codes = PlainLoad<PlainU16x8>(from), zero{};
  to[0] = std::bit_cast<PlainF32x4>(__builtin_shufflevector(zero, codes, 0, 8, 1, 9, 2, 10, 3, 11));
  to[1] =
      std::bit_cast<PlainF32x4>(__builtin_shufflevector(zero, codes, 4, 12, 5, 13, 6, 14, 7, 15));
}

/// 16 E4M3 codes as four vectors of their values times 2^-120: a code becomes the upper bits of an
/// FP32. Whether it could: a subnormal would be one there too, slow and to some threads zero, and
/// NaN a number.
inline bool PlainE4m3x16(const std::uint8_t* from, PlainF32x4 (&to)[4]) noexcept {
  const PlainU8x16 codes = PlainLoad<PlainU8x16>(from), zero{};
  const PlainU8x16 twice = codes + codes;  // without the sign
  const auto rare = (twice - 2 < zero + 13) | (twice == zero + 254);
  const auto halves = std::bit_cast<PlainU64x2>(rare);
  if (__builtin_expect((halves[0] | halves[1]) != 0, 0)) return false;
  const auto words = [](PlainU8x16 bytes, PlainF32x4& first, PlainF32x4& second) {
    const auto pairs = std::bit_cast<PlainU16x8>(bytes);
    const PlainU16x8 none{};
    const auto value = [](PlainU16x8 lanes) {
      // Sign and exponent stay above; the copies of the sign go.
      const PlainI32x4 bits = std::bit_cast<PlainI32x4>(lanes) >> 4;
      return std::bit_cast<PlainF32x4>(bits & static_cast<std::int32_t>(0x87f00000u));
    };
    first = value(__builtin_shufflevector(none, pairs, 0, 8, 1, 9, 2, 10, 3, 11));
    second = value(__builtin_shufflevector(none, pairs, 4, 12, 5, 13, 6, 14, 7, 15));
  };
  words(
      __builtin_shufflevector(zero, codes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
      to[0], to[1]);
  words(__builtin_shufflevector(zero, codes, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                15, 31),
        to[2], to[3]);
  return true;
}

}  // namespace culet
