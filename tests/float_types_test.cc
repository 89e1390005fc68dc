// The conversions against arithmetic that shares nothing with them: frexp, ldexp and nearbyint.
#include "base/float_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace culet {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Shape {
  DataType type;
  int precision;     // significant bits
  int min_exponent;  // of the smallest normal number
  double largest;
  bool saturates;
};
const Shape kShapes[] = {
    {DataType::kFloat32, 24, -126, std::numeric_limits<float>::max(), false},
    {DataType::kFloat16, 11, -14, 65504.0, false},
    {DataType::kBfloat16, 8, -126, std::ldexp(255.0, 120), false},
    {DataType::kFloat8_e4m3, 4, -6, 448.0, true},
};

// One rounding to nearest even by scaling: nearbyint in the default rounding mode.
double Expected(const Shape& shape, double value) {
  if (std::isnan(value)) return kNaN;
  double rounded = value;
  if (value != 0 && std::isfinite(value)) {
    int exponent = 0;
    std::frexp(value, &exponent);
    const int last = std::max(exponent - 1, shape.min_exponent) - (shape.precision - 1);
    rounded = std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
  }
  if (std::fabs(rounded) > shape.largest) {
    rounded = std::copysign(shape.saturates ? shape.largest : kInfinity, value);
  }
  return rounded;
}

void ExpectSame(double actual, double expected, const char* what, double input) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << what << " of " << input;
    return;
  }
  EXPECT_EQ(actual, expected) << what << " of " << input;
  EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << what << " of " << input;
}

// A number of a format from its fields, the textbook formula.
double FromFields(int sign, int exponent, int mantissa, int mantissa_bits, int bias) {
  const double scale = sign != 0 ? -1.0 : 1.0;
  if (exponent == 0) return scale * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return scale * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

TEST(FloatTypes, EveryE4m3CodeHasItsValueAndRoundTrips) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    const float value = Float8E4m3ToFloat(bits);
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(FloatToFloat8E4m3(value) & 0x7f, 0x7f);
      continue;
    }
    ExpectSame(value, FromFields(code >> 7, (code >> 3) & 15, code & 7, 3, 7), "decode", code);
    EXPECT_EQ(FloatToFloat8E4m3(value), bits);
  }
  EXPECT_EQ(Float8E4m3ToFloat(0x7e), 448.0f);
  EXPECT_EQ(Float8E4m3ToFloat(0x01), 0x1p-9f);
}

TEST(FloatTypes, EveryFloat16CodeHasItsValueAndRoundTrips) {
  for (int code = 0; code < 65536; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = Float16ToFloat(bits);
    const int exponent = (code >> 10) & 31, mantissa = code & 1023;
    if (exponent == 31) {
      if (mantissa != 0) {
        EXPECT_TRUE(std::isnan(value)) << code;
        EXPECT_TRUE(std::isnan(Float16ToFloat(FloatToFloat16(value)))) << code;
      } else {
        EXPECT_EQ(value, code >> 15 != 0 ? -kInfinity : kInfinity);
        EXPECT_EQ(FloatToFloat16(value), bits);
      }
      continue;
    }
    ExpectSame(value, FromFields(code >> 15, exponent, mantissa, 10, 15), "decode", code);
    ASSERT_EQ(FloatToFloat16(value), bits);
  }
}

TEST(FloatTypes, EveryBfloat16CodeHasItsValueAndRoundTrips) {
  for (int code = 0; code < 65536; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = Bfloat16ToFloat(bits);
    const int exponent = (code >> 7) & 255, mantissa = code & 127;
    if (exponent == 255) {
      if (mantissa != 0) {
        EXPECT_TRUE(std::isnan(value)) << code;
        EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(value)))) << code;
      } else {
        EXPECT_EQ(value, code >> 15 != 0 ? -kInfinity : kInfinity);
        EXPECT_EQ(FloatToBfloat16(value), bits);
      }
      continue;
    }
    ExpectSame(value, FromFields(code >> 15, exponent, mantissa, 7, 127), "decode", code);
    ASSERT_EQ(FloatToBfloat16(value), bits);
  }
}

// All half-way points between neighbours of the narrow formats, and their nearest doubles.
TEST(FloatTypes, TiesGoToEvenAndTheNearestDoublesDoNot) {
  for (const Shape& shape : kShapes) {
    if (shape.type == DataType::kFloat32) continue;
    const bool e4m3 = shape.type == DataType::kFloat8_e4m3;
    const int codes = e4m3 ? 0x7e : (shape.type == DataType::kFloat16 ? 0x7c00 : 0x7f80) - 1;
    for (int code = 0; code < codes; ++code) {
      const std::uint16_t low = static_cast<std::uint16_t>(code);
      const std::uint16_t high = static_cast<std::uint16_t>(code + 1);
      const double a = LoadAsDouble(&low, shape.type, 0), b = LoadAsDouble(&high, shape.type, 0);
      const double tie = a + (b - a) / 2;
      ASSERT_EQ(RoundTo(shape.type, tie), code % 2 == 0 ? a : b) << a << " to " << b;
      ASSERT_EQ(RoundTo(shape.type, -tie), code % 2 == 0 ? -a : -b);
      // One double below and above the tie: a rounding by way of float would see a tie again.
      ASSERT_EQ(RoundTo(shape.type, std::nextafter(tie, 0)), a);
      ASSERT_EQ(RoundTo(shape.type, std::nextafter(tie, kInfinity)), b);
    }
  }
}

TEST(FloatTypes, RandomDoublesRoundOnce) {
  std::mt19937_64 random(7);
  for (const Shape& shape : kShapes) {
    for (int i = 0; i < 200000; ++i) {
      const double mantissa = 1 + std::ldexp(static_cast<double>(random() >> 11), -53);
      const int exponent = static_cast<int>(random() % 320) - 170;
      const double value = std::ldexp(random() % 2 != 0 ? mantissa : -mantissa, exponent);
      ExpectSame(RoundTo(shape.type, value), Expected(shape, value), ToString(shape.type), value);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(FloatTypes, Float32RoundsAsTheHardwareDoes) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 200000; ++i) {
    const double value = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                                    static_cast<int>(random() % 250) - 200);
    ASSERT_EQ(RoundTo(DataType::kFloat32, value), static_cast<double>(static_cast<float>(value)));
  }
}

TEST(FloatTypes, SpecialValues) {
  for (const Shape& shape : kShapes) {
    const double over = shape.saturates ? shape.largest : kInfinity;
    const double smallest = std::ldexp(1.0, shape.min_exponent - (shape.precision - 1));
    const double half_step = std::ldexp(shape.largest, -shape.precision - 1);
    for (double value : {0.0, -0.0, kInfinity, -kInfinity, kNaN, 1e300, -1e300, 5e-324, 1e-310,
                         shape.largest, smallest, -smallest, smallest / 2, smallest * 0.75,
                         smallest * 1.5, std::ldexp(1.0, shape.min_exponent) - smallest / 2}) {
      ExpectSame(RoundTo(shape.type, value), Expected(shape, value), ToString(shape.type), value);
    }
    EXPECT_EQ(RoundTo(shape.type, kInfinity), over);
    EXPECT_EQ(RoundTo(shape.type, shape.largest + half_step / 4), shape.largest);
    EXPECT_EQ(RoundTo(shape.type, smallest / 2), 0.0);
    EXPECT_EQ(PrecisionOf(shape.type), shape.precision);
  }
  EXPECT_EQ(RoundTo(DataType::kFloat8_e4m3, 464.0), 448.0);
  EXPECT_EQ(RoundTo(DataType::kFloat16, 65519.99), 65504.0);
  EXPECT_EQ(RoundTo(DataType::kFloat16, 65520.0), kInfinity);
  EXPECT_EQ(PrecisionOf(DataType::kNull), 0);
}

TEST(FloatTypes, LinesHonourFirstAndStride) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7};
  for (const Shape& shape : kShapes) {
    std::vector<std::uint32_t> storage(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      StoreFromDouble(storage.data(), shape.type, static_cast<std::int64_t>(i), values[i]);
    }
    double line[3] = {};
    LoadLine(storage.data(), shape.type, 1, 3, 3, line);
    EXPECT_EQ(line[0], 1);
    EXPECT_EQ(line[1], 4);
    EXPECT_EQ(line[2], 7);
    EXPECT_EQ(LoadAsDouble(storage.data(), shape.type, 5), 5);
  }
}

}  // namespace
}  // namespace culet
