// Codes of 4 and 8 bits as pairs of 16-bit numbers.
#pragma once

#include "culet/types.h"
#include "kernels/cuda_ops/code_pairs.cuh"

namespace culet::cuda_ops {

/// Pairs of numbers of T. A small integer in the last bits of kMagic is added to its value.
template <class T>
struct HalfConstants;
template <>
struct HalfConstants<__nv_bfloat16> {
  static constexpr DataType kType = DataType::kBfloat16;
  static constexpr const char* kName = "_bf16/";       // in the ids of kernels
  static constexpr std::uint32_t kMagic = 0x43004300;  // 128
  static constexpr std::uint32_t kOnes = 0x3F803F80;
  // E2M1's exponent and fraction at their places are 2^-126 of its value.
  static constexpr int kE2m1Shift = 6;
  static constexpr std::uint32_t kE2m1Mask = 0x01C001C0, kE2m1Factor = 0x7E807E80;  // 2^126
  // E4M3's lie `kE4m3Shift` bits below a sign, and are 2^-120 of its value.
  static constexpr int kE4m3Shift = 4;
  static constexpr std::uint32_t kE4m3Factor = 0x7B807B80;  // 2^120
};
template <>
struct HalfConstants<__half> {
  static constexpr DataType kType = DataType::kFloat16;
  static constexpr const char* kName = "_f16/";
  static constexpr std::uint32_t kMagic = 0x64006400;  // 1024
  static constexpr std::uint32_t kOnes = 0x3C003C00;
  static constexpr int kE2m1Shift = 9;                                              // 2^-14
  static constexpr std::uint32_t kE2m1Mask = 0x0E000E00, kE2m1Factor = 0x74007400;  // 2^14
  static constexpr int kE4m3Shift = 1;
  static constexpr std::uint32_t kE4m3Factor = 0x5C005C00;  // 2^8
};

__device__ __forceinline__ constexpr std::uint32_t Shifted(std::uint32_t bits, int left) {
  return left >= 0 ? bits << left : bits >> -left;
}

/// uint4: codes of 4 bits less a zero point.
struct Uint4Codes {
  static constexpr DataType kType = DataType::kUint4;
  static constexpr int kBits = 4;
  static constexpr bool kNans = false;
  static constexpr bool kZeros = true;
  /// Codes i and i + 4 of a word, for i = kFirst, as a pair of T, less what `zero` is above kMagic.
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t Pair(std::uint32_t word, std::uint32_t zero) {
    return SubtractPairs<T>(BesideMagic<T, kFirst>(word), zero);
  }
  /// The same pair, kBias above the codes. 128 costs no instruction and a sum of FP32 five of its
  /// bits; 1024 would cost eight.
  template <class T>
  static constexpr float kBias = std::is_same_v<T, __half> ? -8.0f : 128.0f;
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t Biased(std::uint32_t word) {
    const std::uint32_t pair = BesideMagic<T, kFirst>(word);
    if constexpr (std::is_same_v<T, __half>) return SubtractPairs<T>(pair, 0x64086408);
    return pair;
  }

  /// Whether codes less this zero point are exact in 16 bits, and so is it beside kMagic.
  static __device__ __forceinline__ bool IsWhole(float zero) {
    const bool near = zero >= -64.0f && zero <= 127.0f;
    return near && static_cast<float>(static_cast<int>(zero)) == zero;
  }
  /// kMagic plus the zero point, twice. Requires: IsWhole.
  template <class T>
  static __device__ __forceinline__ std::uint32_t ZeroPair(float zero) {
    std::uint32_t bits = __float_as_uint(128.0f + zero) >> 16;
    if constexpr (std::is_same_v<T, __half>) {
      const __half half = __float2half_rn(1024.0f + zero);
      std::uint16_t copy;
      memcpy(&copy, &half, sizeof copy);
      bits = copy;
    }
    return bits | bits << 16;
  }

 private:
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t BesideMagic(std::uint32_t word) {
    return MaskedOr(word >> (4 * kFirst), 0x000F000F, HalfConstants<T>::kMagic);
  }
};

struct E2m1Codes {
  static constexpr DataType kType = DataType::kFloat4_e2m1;
  static constexpr int kBits = 4;
  static constexpr bool kNans = false;
  static constexpr bool kZeros = false;
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t Pair(std::uint32_t word, std::uint32_t) {
    return Scaled<T, kFirst>(word, HalfConstants<T>::kE2m1Factor);
  }
  /// The pair by `factor` over kE2m1Factor.
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t Scaled(std::uint32_t word, std::uint32_t factor) {
    using Half = HalfConstants<T>;
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      // A product puts a code's upper bit and the others at their places at once, and leaves less
      // to the units that shift and mask.
      constexpr int kLeft = 4 * (kFirst % 2);
      constexpr std::uint32_t kPlaces = (1u << (12 - kLeft)) + (1u << (6 - kLeft));
      const std::uint32_t codes = word >> (kFirst / 2 * 8) & (0x000F000Fu << kLeft);
      return MultiplyPairs<T>(codes * kPlaces & (0x80008000 | Half::kE2m1Mask), factor);
    }
    const std::uint32_t sign = word << (12 - 4 * kFirst) & 0x80008000;
    const std::uint32_t rest = Shifted(word, Half::kE2m1Shift - 4 * kFirst) & Half::kE2m1Mask;
    return MultiplyPairs<T>(sign | rest, factor);
  }
};

/// int8: a word holds four codes, of which i and i + 2 are a pair. Zero points are multiplied by
/// the sums of the tokens.
struct Int8Codes {
  static constexpr DataType kType = DataType::kInt8;
  static constexpr int kBits = 8;
  static constexpr bool kNans = false;
  static constexpr bool kZeros = true;
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t Pair(std::uint32_t word, std::uint32_t) {
    constexpr std::uint32_t kMagic = HalfConstants<T>::kMagic;
    const std::uint32_t codes = word >> (8 * kFirst);
    return SubtractPairs<T>(MaskedOr(codes, 0x007F007F, kMagic),
                            MaskedOr(codes, 0x00800080, kMagic));
  }
  static __device__ __forceinline__ bool IsWhole(float zero) { return zero == 0; }
  template <class T>
  static __device__ __forceinline__ std::uint32_t ZeroPair(float) {
    return 0;
  }
};

/// E4M3: pairs as of int8. Codes of NaN become +-480; NansOf finds them.
struct E4m3Codes {
  static constexpr DataType kType = DataType::kFloat8_e4m3;
  static constexpr int kBits = 8;
  static constexpr bool kNans = true;
  static constexpr bool kZeros = false;
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t Pair(std::uint32_t word, std::uint32_t) {
    using Half = HalfConstants<T>;
    const std::uint32_t codes = kFirst == 0 ? word << 8 : word;
    const std::uint32_t rest = (codes & 0x7F007F00) >> Half::kE4m3Shift;
    return MultiplyPairs<T>(MaskedOr(codes, 0x80008000, rest), Half::kE4m3Factor);
  }
  /// Bits of kNanBits are those of bytes that are NaN.
  static __device__ __forceinline__ std::uint32_t NansOf(std::uint32_t word) {
    return (word & 0x7F7F7F7F) + 0x01010101;
  }
  static constexpr std::uint32_t kNanBits = 0x80808080;
};

}  // namespace culet::cuda_ops
