#include "base/float_types.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace culet {
namespace {

// A binary floating-point format narrower than double.
struct Format {
  int mantissa_bits;       // stored ones
  int min_exponent;        // of the smallest normal number
  std::uint32_t overflow;  // code of what is too large: infinity, or the largest number
  std::uint32_t nan;       // a quiet one
  std::uint32_t sign;
};
constexpr Format kFloat32Format{23, -126, 0x7f800000u, 0x7fc00000u, 0x80000000u};
constexpr Format kFloat16Format{10, -14, 0x7c00u, 0x7e00u, 0x8000u};
constexpr Format kBfloat16Format{7, -126, 0x7f80u, 0x7fc0u, 0x8000u};
constexpr Format kE4m3Format{3, -6, 0x7eu, 0x7fu, 0x80u};

// Rounds once, to nearest even, in integers: the result depends on no rounding mode.
constexpr std::uint32_t Encode(double value, const Format& format) noexcept {
  constexpr int kDoubleMantissaBits = 52;
  constexpr int kDoubleBias = 1023;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint32_t sign = (bits >> 63) != 0 ? format.sign : 0;
  const int biased = static_cast<int>((bits >> kDoubleMantissaBits) & 0x7ff);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << kDoubleMantissaBits) - 1);
  if (biased == 0x7ff) return sign | (mantissa != 0 ? format.nan : format.overflow);
  if (biased == 0)
    return sign;  // zero, or below 2^-1022 and so below every format's half-way point
  mantissa |= std::uint64_t{1} << kDoubleMantissaBits;

  // The last bit kept weighs 2^(max(exponent, min_exponent) - mantissa_bits).
  const int exponent = biased - kDoubleBias;
  const int step = exponent > format.min_exponent ? exponent - format.min_exponent : 0;
  const int below = exponent < format.min_exponent ? format.min_exponent - exponent : 0;
  const int shift = kDoubleMantissaBits - format.mantissa_bits + below;
  if (shift > kDoubleMantissaBits + 1) return sign;  // less than half of the smallest number
  std::uint64_t kept = mantissa >> shift;
  const std::uint64_t rest = mantissa & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // The hidden bit of `kept` adds 1 to the exponent field, and so does a carry out of rounding.
  const std::uint64_t code = (static_cast<std::uint64_t>(step) << format.mantissa_bits) + kept;
  return sign | (code < format.overflow ? static_cast<std::uint32_t>(code) : format.overflow);
}

constexpr float DecodeE4m3(std::uint8_t bits) noexcept {
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) {
    // A product with NaN is no constant expression to Clang.
    const float nan = std::numeric_limits<float>::quiet_NaN();
    return sign < 0 ? -nan : nan;
  }
  // 2^(exponent - 7) (1 + mantissa / 8), or 2^-6 mantissa / 8, in units of 2^-9.
  const int units = exponent != 0 ? (8 + mantissa) << (exponent - 1) : mantissa;
  return sign * static_cast<float>(units) * 0x1p-9f;
}

constexpr auto kE4m3Values = [] {
  std::array<float, 256> values{};
  for (int i = 0; i < 256; ++i) values[i] = DecodeE4m3(static_cast<std::uint8_t>(i));
  return values;
}();

constexpr double kE2m1Values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

double DecodeE2m1(int bits) noexcept {
  return (bits & 8) != 0 ? -kE2m1Values[bits & 7] : kE2m1Values[bits & 7];
}

double DecodeUe8m0(std::uint8_t bits) noexcept {
  return bits == 0xff ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, bits - 127);
}

// The power of two that is nearest, the larger of two, within the format's range.
std::uint8_t EncodeUe8m0(double value) noexcept {
  if (!(value == value) || std::isinf(value)) return 0xff;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  if (fraction < 0.75) --exponent;
  return static_cast<std::uint8_t>(value <= 0 ? 0 : std::clamp(exponent + 127, 0, 254));
}

// The code in [0, 16) whose value is nearest, of two the one whose last bit is 0.
template <class Decode>
std::uint8_t EncodeHalf(double value, Decode decode) noexcept {
  int best = 0;
  for (int code = 1; code < 16; ++code) {
    const double nearer = std::fabs(decode(best) - value) - std::fabs(decode(code) - value);
    if (nearer > 0 || (nearer == 0 && (best & 1) > (code & 1))) best = code;
  }
  return static_cast<std::uint8_t>(best);
}

std::int8_t EncodeInt8(double value) noexcept {
  constexpr double kLeast = -128, kMost = 127;
  return static_cast<std::int8_t>(std::nearbyint(std::clamp(value, kLeast, kMost)));
}

double DecodeInt4(int bits) noexcept { return (bits ^ 8) - 8; }
double DecodeUint4(int bits) noexcept { return bits; }

template <class Decode>
void LoadHalves(const void* data, std::int64_t first, std::int64_t stride, int count, double* out,
                Decode decode) noexcept {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  for (int i = 0; i < count; ++i) {
    const std::int64_t index = first + i * stride;
    out[i] = decode(bytes[index / 2] >> (index % 2 * 4) & 15);
  }
}

void StoreHalf(void* data, std::int64_t index, std::uint8_t code) noexcept {
  std::uint8_t& byte = static_cast<std::uint8_t*>(data)[index / 2];
  byte = static_cast<std::uint8_t>(index % 2 == 0 ? (byte & 0xf0) | code : (byte & 15) | code << 4);
}

template <class Element, class Decode>
void LoadAll(const void* data, std::int64_t first, std::int64_t stride, int count, double* out,
             Decode decode) noexcept {
  const Element* element = static_cast<const Element*>(data) + first;
  for (int i = 0; i < count; ++i) out[i] = decode(element[i * stride]);
}

}  // namespace

float Float16ToFloat(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31u;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t widened = exponent == 31 ? 255u : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (widened << 23) | (mantissa << 13));
}

float Bfloat16ToFloat(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float Float8E4m3ToFloat(std::uint8_t bits) noexcept { return kE4m3Values[bits]; }

std::uint16_t FloatToFloat16(float value) noexcept {
  return static_cast<std::uint16_t>(Encode(value, kFloat16Format));
}

std::uint16_t FloatToBfloat16(float value) noexcept {
  return static_cast<std::uint16_t>(Encode(value, kBfloat16Format));
}

std::uint8_t FloatToFloat8E4m3(float value) noexcept {
  return static_cast<std::uint8_t>(Encode(value, kE4m3Format));
}

void LoadLine(const void* data, DataType type, std::int64_t first, std::int64_t stride, int count,
              double* out) noexcept {
  switch (type) {
    case DataType::kFloat32:
      return LoadAll<float>(data, first, stride, count, out, [](float v) { return v; });
    case DataType::kFloat16:
      return LoadAll<std::uint16_t>(data, first, stride, count, out, Float16ToFloat);
    case DataType::kBfloat16:
      return LoadAll<std::uint16_t>(data, first, stride, count, out, Bfloat16ToFloat);
    case DataType::kFloat8_e4m3:
      return LoadAll<std::uint8_t>(data, first, stride, count, out, Float8E4m3ToFloat);
    case DataType::kFloat8_ue8m0:
      return LoadAll<std::uint8_t>(data, first, stride, count, out, DecodeUe8m0);
    case DataType::kInt8:
      return LoadAll<std::int8_t>(data, first, stride, count, out, [](std::int8_t v) { return v; });
    case DataType::kInt4:
      return LoadHalves(data, first, stride, count, out, DecodeInt4);
    case DataType::kUint4:
      return LoadHalves(data, first, stride, count, out, DecodeUint4);
    case DataType::kFloat4_e2m1:
      return LoadHalves(data, first, stride, count, out, DecodeE2m1);
    case DataType::kInt32:
    case DataType::kNull:
      break;
  }
  for (int i = 0; i < count; ++i) out[i] = std::numeric_limits<double>::quiet_NaN();
}

double LoadAsDouble(const void* data, DataType type, std::int64_t index) noexcept {
  double value = 0;
  LoadLine(data, type, index, 1, 1, &value);
  return value;
}

void StoreFromDouble(void* data, DataType type, std::int64_t index, double value) noexcept {
  switch (type) {
    case DataType::kFloat32:
      static_cast<std::uint32_t*>(data)[index] = Encode(value, kFloat32Format);
      break;
    case DataType::kFloat16:
      static_cast<std::uint16_t*>(data)[index] =
          static_cast<std::uint16_t>(Encode(value, kFloat16Format));
      break;
    case DataType::kBfloat16:
      static_cast<std::uint16_t*>(data)[index] =
          static_cast<std::uint16_t>(Encode(value, kBfloat16Format));
      break;
    case DataType::kFloat8_e4m3:
      static_cast<std::uint8_t*>(data)[index] =
          static_cast<std::uint8_t>(Encode(value, kE4m3Format));
      break;
    case DataType::kFloat8_ue8m0:
      static_cast<std::uint8_t*>(data)[index] = EncodeUe8m0(value);
      break;
    case DataType::kInt8:
      static_cast<std::int8_t*>(data)[index] = EncodeInt8(value);
      break;
    case DataType::kInt4:
      StoreHalf(data, index, EncodeHalf(value, DecodeInt4));
      break;
    case DataType::kUint4:
      StoreHalf(data, index, EncodeHalf(value, DecodeUint4));
      break;
    case DataType::kFloat4_e2m1:
      StoreHalf(data, index, EncodeHalf(value, DecodeE2m1));
      break;
    case DataType::kInt32:
    case DataType::kNull:
      break;
  }
}

double RoundTo(DataType type, double value) noexcept {
  std::uint32_t element = 0;
  StoreFromDouble(&element, type, 0, value);
  return LoadAsDouble(&element, type, 0);
}

double SmallestNormalOf(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat32:
      return std::ldexp(1.0, kFloat32Format.min_exponent);
    case DataType::kFloat16:
      return std::ldexp(1.0, kFloat16Format.min_exponent);
    case DataType::kBfloat16:
      return std::ldexp(1.0, kBfloat16Format.min_exponent);
    case DataType::kFloat8_e4m3:
      return std::ldexp(1.0, kE4m3Format.min_exponent);
    case DataType::kFloat4_e2m1:
      return 1;
    case DataType::kFloat8_ue8m0:
    case DataType::kInt8:
    case DataType::kInt4:
    case DataType::kUint4:
    case DataType::kInt32:
    case DataType::kNull:
      break;
  }
  return 0;
}

int PrecisionOf(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat32:
      return kFloat32Format.mantissa_bits + 1;
    case DataType::kFloat16:
      return kFloat16Format.mantissa_bits + 1;
    case DataType::kBfloat16:
      return kBfloat16Format.mantissa_bits + 1;
    case DataType::kFloat8_e4m3:
      return kE4m3Format.mantissa_bits + 1;
    case DataType::kFloat8_ue8m0:
      return 1;
    case DataType::kFloat4_e2m1:
      return 2;
    case DataType::kInt4:
    case DataType::kUint4:
      return 4;
    case DataType::kInt8:
      return 8;
    case DataType::kInt32:
    case DataType::kNull:
      break;
  }
  return 0;
}

}  // namespace culet
