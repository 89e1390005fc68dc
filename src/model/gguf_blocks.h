// Blocks of GGUF's quantised types: element i is Scale(i / kGroup) * Code(i) + Offset(i / kGroup).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/float_types.h"
#include "culet/types.h"

namespace culet::gguf {

inline float HalfAt(const std::uint8_t* data) noexcept {
  std::uint16_t bits = 0;
  std::memcpy(&bits, data, sizeof bits);
  return Float16ToFloat(bits);
}

/// 32 elements with one scale of 16 bits, which begins the block; no offset.
struct Block32 {
  static constexpr int kGroup = 32;
  static constexpr bool kOffsets = false;
  static constexpr bool kHalfScale = true;  ///< the scale is the block's first two bytes
  const std::uint8_t* block;
  float d;
  explicit Block32(const std::uint8_t* from) noexcept : block(from), d(HalfAt(from)) {}
  float Scale(int) const noexcept { return d; }
  static float Offset(int) noexcept { return 0; }
};

/// The same with an offset of 16 bits behind the scale.
struct Block32WithOffset {
  static constexpr int kGroup = 32;
  static constexpr bool kOffsets = true;
  static constexpr bool kHalfScale = false;
  const std::uint8_t* block;
  float d, m;
  explicit Block32WithOffset(const std::uint8_t* from) noexcept
      : block(from), d(HalfAt(from)), m(HalfAt(from + 2)) {}
  float Scale(int) const noexcept { return d; }
  float Offset(int) const noexcept { return m; }
};

/// Code i of 32, of which 16 bytes hold the first half in their low halves.
inline int FourBits(const std::uint8_t* codes, int i) noexcept {
  return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
}
/// The fifth bit of code i of 32, out of 32 bits.
inline int FifthBit(const std::uint8_t* bits, int i) noexcept {
  return (bits[i / 8] >> i % 8 & 1) << 4;
}

struct BlockQ4_0 : Block32 {
  static constexpr DataType kCodes = DataType::kUint4;
  static constexpr int kMiddle = 8;
  using Block32::Block32;
  int Code(int i) const noexcept { return FourBits(block + 2, i) - kMiddle; }
};

struct BlockQ4_1 : Block32WithOffset {
  static constexpr DataType kCodes = DataType::kUint4;
  static constexpr int kMiddle = 0;
  using Block32WithOffset::Block32WithOffset;
  int Code(int i) const noexcept { return FourBits(block + 4, i); }
};

struct BlockQ5_0 : Block32 {
  static constexpr DataType kCodes = DataType::kInt8;
  static constexpr int kMiddle = 0;
  using Block32::Block32;
  int Code(int i) const noexcept { return (FourBits(block + 6, i) | FifthBit(block + 2, i)) - 16; }
};

struct BlockQ5_1 : Block32WithOffset {
  static constexpr DataType kCodes = DataType::kInt8;
  static constexpr int kMiddle = 0;
  using Block32WithOffset::Block32WithOffset;
  int Code(int i) const noexcept { return FourBits(block + 8, i) | FifthBit(block + 4, i); }
};

struct BlockQ8_0 : Block32 {
  static constexpr DataType kCodes = DataType::kInt8;
  static constexpr int kMiddle = 0;
  using Block32::Block32;
  int Code(int i) const noexcept { return static_cast<std::int8_t>(block[2 + i]); }
};

/// The numbers that codes of IQ4_NL and IQ4_XS stand for.
inline constexpr std::int8_t kUneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

struct BlockIQ4_NL : Block32 {
  static constexpr DataType kCodes = DataType::kInt8;
  static constexpr int kMiddle = 0;
  using Block32::Block32;
  int Code(int i) const noexcept { return kUneven[FourBits(block + 2, i)]; }
};

/// Eight groups of 32, each with a scale and a minimum: two halves, twelve bytes of eight scales
/// and eight minima of 6 bits.
struct BlockOfMinima {
  static constexpr int kGroup = 32, kGroups = 8;
  static constexpr bool kOffsets = true;
  static constexpr bool kHalfScale = false;
  const std::uint8_t* rest;
  float scales[kGroups], minima[kGroups];
  explicit BlockOfMinima(const std::uint8_t* block) noexcept : rest(block + 16) {
    const float d = HalfAt(block), m = HalfAt(block + 2);
    const std::uint8_t* const s = block + 4;
    for (int j = 0; j < kGroups; ++j) {
      const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
      const int minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
      scales[j] = d * static_cast<float>(scale);  // 17 bits: exact
      minima[j] = m * static_cast<float>(minimum);
    }
  }
  float Scale(int group) const noexcept { return scales[group]; }
  float Offset(int group) const noexcept { return -minima[group]; }
  /// Code i of 256, of which 32 bytes hold 64, the first 32 in their low halves.
  static int FourBits(const std::uint8_t* codes, int i) noexcept {
    const std::uint8_t byte = codes[i / 64 * 32 + i % 32];
    return i % 64 < 32 ? byte & 15 : byte >> 4;
  }
};

struct BlockQ4_K : BlockOfMinima {
  static constexpr DataType kCodes = DataType::kUint4;
  static constexpr int kMiddle = 0;
  using BlockOfMinima::BlockOfMinima;
  int Code(int i) const noexcept { return FourBits(rest, i); }
};

/// Bit g of byte l is the fifth bit of element l of group g.
struct BlockQ5_K : BlockOfMinima {
  static constexpr DataType kCodes = DataType::kInt8;
  static constexpr int kMiddle = 0;
  using BlockOfMinima::BlockOfMinima;
  int Code(int i) const noexcept {
    return FourBits(rest + 32, i) | (rest[i % 32] >> i / 32 & 1) << 4;
  }
};

/// The lower four bits of 256 codes, the upper two, sixteen scales of 8 bits, a half.
struct BlockQ6_K {
  static constexpr DataType kCodes = DataType::kInt8;
  static constexpr int kGroup = 16, kMiddle = 0;
  static constexpr bool kOffsets = false;
  static constexpr bool kHalfScale = false;
  const std::uint8_t *low, *high;
  const std::int8_t* factors;
  float d;
  explicit BlockQ6_K(const std::uint8_t* block) noexcept
      : low(block),
        high(block + 128),
        factors(reinterpret_cast<const std::int8_t*>(block + 192)),
        d(HalfAt(block + 208)) {}
  float Scale(int group) const noexcept { return d * static_cast<float>(factors[group]); }
  static float Offset(int) noexcept { return 0; }
  int Code(int i) const noexcept {
    const int half = i / 128, in_half = i % 128, quarter = in_half / 32, l = in_half % 32;
    const std::uint8_t byte = low[half * 64 + (quarter % 2) * 32 + l];
    const int four = quarter < 2 ? byte & 15 : byte >> 4;
    return (four | (high[half * 32 + l] >> 2 * quarter & 3) << 4) - 32;
  }
};

/// A half, eight scales of 6 bits less 32: the upper two bits in 16, the lower four in four bytes.
/// Codes as those of IQ4_NL, group by group.
struct BlockIQ4_XS {
  static constexpr DataType kCodes = DataType::kInt8;
  static constexpr int kGroup = 32, kMiddle = 0;
  static constexpr bool kOffsets = false;
  static constexpr bool kHalfScale = false;
  const std::uint8_t* block;
  float d;
  explicit BlockIQ4_XS(const std::uint8_t* from) noexcept : block(from), d(HalfAt(from)) {}
  float Scale(int group) const noexcept {
    const int low = block[4 + group / 2] >> 4 * (group % 2) & 15;
    const int high = block[2 + group / 4] >> 2 * (group % 4) & 3;
    return d * static_cast<float>((low | high << 4) - 32);
  }
  static float Offset(int) noexcept { return 0; }
  int Code(int i) const noexcept { return kUneven[FourBits(block + 8 + i / 32 * 16, i % 32)]; }
};

/// E2M1 codes as those of Q4_0 lie, behind a scale that is a power of two, 2^(byte - 127). Code is
/// twice the number, so Scale half of that.
struct BlockMXFP4 {
  static constexpr DataType kCodes = DataType::kFloat4_e2m1;
  static constexpr int kGroup = 32, kMiddle = 0;
  static constexpr bool kOffsets = false;
  static constexpr bool kHalfScale = false;
  const std::uint8_t* block;
  explicit BlockMXFP4(const std::uint8_t* from) noexcept : block(from) {}
  float Scale(int) const noexcept {
    return *block == 255 ? NAN : std::ldexp(1.0f, static_cast<int>(*block) - 128);
  }
  static float Offset(int) noexcept { return 0; }
  int Bits(int i) const noexcept { return FourBits(block + 1, i); }
  int Code(int i) const noexcept {
    constexpr int kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12};
    const int bits = Bits(i);
    return (bits & 8) != 0 ? -kTwice[bits & 7] : kTwice[bits & 7];
  }
};

}  // namespace culet::gguf
