// The vectors of four lanes that serve where there are no SIMD targets: every code, and the
// exponential against double.
#include "kernels/cpu/simd_plain.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/float_types.h"

namespace culet {
namespace {

// A code among codes that are never refused.
TEST(PlainVectorTest, EveryE4m3CodeIsExactOrRefused) {
  for (int code = 0; code < 256; ++code) {
    const int magnitude = code & 0x7f;
    const bool refused = (magnitude > 0 && magnitude < 8) || magnitude == 0x7f;
    for (int at = 0; at < 16; ++at) {
      std::uint8_t codes[16];
      for (int i = 0; i < 16; ++i) codes[i] = static_cast<std::uint8_t>(i % 2 == 0 ? 0x88 : 0);
      codes[at] = static_cast<std::uint8_t>(code);
      PlainF32x4 values[4];
      ASSERT_EQ(PlainE4m3x16(codes, values), !refused) << code << " at " << at;
      if (refused) continue;
      for (int i = 0; i < 16; ++i) {
        const float value = values[i / 4][i % 4],
                    expected = Float8E4m3ToFloat(codes[i]) * 0x1p-120f;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected))
            << code << " at " << at;
      }
    }
  }
}

TEST(PlainVectorTest, EveryBfloat16Code) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    std::uint16_t codes[8];
    for (std::uint32_t i = 0; i < 8; ++i) codes[i] = static_cast<std::uint16_t>(code + i);
    PlainF32x4 values[2];
    PlainBfloat16x8(codes, values);
    for (int i = 0; i < 8; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(float{values[i / 4][i % 4]}),
                std::uint32_t{codes[i]} << 16);
    }
  }
}

TEST(PlainVectorTest, TheExponential) {
  for (float x = 0; x > -87.0f; x -= 0.00037f) {
    const PlainF32x4 found = PlainExp(PlainF32x4{x, x / 3, x * 0.01f, 0.0f});
    for (int lane = 0; lane < 3; ++lane) {
      const float input = lane == 0 ? x : lane == 1 ? x / 3 : x * 0.01f;
      const double expected = std::exp(static_cast<double>(input));
      ASSERT_NEAR(found[lane], expected, 2e-7 * expected) << input;
    }
    ASSERT_EQ(found[3], 1.0f);
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const PlainF32x4 ends =
      PlainExp(PlainF32x4{-kInfinity, -88.0f, std::numeric_limits<float>::quiet_NaN(), -1e30f});
  EXPECT_EQ(ends[0], 0.0f);
  EXPECT_EQ(ends[1], 0.0f);
  EXPECT_TRUE(std::isnan(float{ends[2]}));
  EXPECT_EQ(ends[3], 0.0f);
}

}  // namespace
}  // namespace culet
