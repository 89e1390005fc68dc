// Operands and results of the tests that run Hopper's products on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/float_types.h"
#include "culet/types.h"

namespace culet {

inline std::size_t Size(std::int64_t count) { return static_cast<std::size_t>(count); }

inline int BytesOfType(DataType type) {
  return type == DataType::kFloat32 ? 4 : type == DataType::kFloat8_e4m3 ? 1 : 2;
}

/// Elements of any type, on 16 bytes.
struct Elements {
  DataType type;
  std::vector<std::uint64_t> memory;

  /// All of them `value`.
  Elements(DataType of, std::int64_t count, float value)
      : type(of), memory(Size(count * BytesOfType(of) + 31) / 8) {
    for (std::int64_t i = 0; i < count; ++i) Set(i, value);
  }
  void* data() {
    return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 15) / 16 *
                                   16);
  }
  const void* data() const { return const_cast<Elements*>(this)->data(); }
  void Set(std::int64_t i, float value) {
    if (type == DataType::kFloat32) return Put(i, value);
    if (type == DataType::kFloat8_e4m3) return Put(i, FloatToFloat8E4m3(value));
    Put(i, type == DataType::kBfloat16 ? FloatToBfloat16(value) : FloatToFloat16(value));
  }
  float Get(std::int64_t i) const {
    if (type == DataType::kFloat32) return At<float>(i);
    if (type == DataType::kFloat8_e4m3) return Float8E4m3ToFloat(At<std::uint8_t>(i));
    const auto bits = At<std::uint16_t>(i);
    return type == DataType::kBfloat16 ? Bfloat16ToFloat(bits) : Float16ToFloat(bits);
  }
  /// All values, which a reference reads often.
  std::vector<float> Values(std::int64_t count) const {
    std::vector<float> all(Size(count));
    for (std::int64_t i = 0; i < count; ++i) all[Size(i)] = Get(i);
    return all;
  }

 private:
  template <class T>
  void Put(std::int64_t i, T value) {
    std::memcpy(static_cast<char*>(data()) + i * static_cast<int>(sizeof value), &value,
                sizeof value);
  }
  template <class T>
  T At(std::int64_t i) const {
    T value;
    std::memcpy(&value, static_cast<const char*>(data()) + i * static_cast<int>(sizeof value),
                sizeof value);
    return value;
  }
};

/// Whole numbers up to `most`, whose sums are exact in FP32. Rows are `ld` apart; what lies between
/// them is NaN.
inline Elements WholeNumbers(DataType type, std::int64_t rows, std::int64_t columns,
                             std::int64_t ld, int most, unsigned seed) {
  Elements all(type, rows * ld, NAN);
  std::mt19937 random(seed);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      all.Set(row * ld + column,
              static_cast<float>(static_cast<int>(random() % static_cast<unsigned>(2 * most + 1)) -
                                 most));
  return all;
}

/// Powers of two from 1/2 to 4.
inline std::vector<float> PowersOfTwo(std::int64_t count, unsigned seed) {
  std::vector<float> all(Size(count));
  std::mt19937 random(seed);
  for (float& scale : all) scale = std::ldexp(0.5f, static_cast<int>(random() % 4));
  return all;
}

/// The sum of products of `count` values. Raw pointers: tests are not optimised.
inline double Dot(const float* a, const float* b, int count) {
  double sum = 0;
  for (const float* const end = a + count; a != end; ++a, ++b) sum += static_cast<double>(*a) * *b;
  return sum;
}

inline double SiluOf(double x) { return x / (1.0 + std::exp(-x)); }

/// What D holds where `value` was stored in its type.
inline float Rounded(DataType type, double value) {
  Elements one(type, 1, static_cast<float>(value));
  return one.Get(0);
}

/// D before a product: what no kernel gives.
inline constexpr float kUntouched = 77.25f;

/// Whether D's element is `expected`, rounded to D's type; or within `ulps` units of FP32's last
/// place and one rounding where `ulps` > 0.
inline bool IsNear(const Elements& d, std::int64_t at, double expected, double ulps) {
  const float found = d.Get(at);
  if (ulps == 0) return found == Rounded(d.type, expected);
  const double step = d.type == DataType::kFloat32   ? 0x1p-24
                      : d.type == DataType::kFloat16 ? 0x1p-11
                                                     : 0x1p-8;
  return std::fabs(found - expected) <= std::fabs(expected) * (ulps * 0x1p-23 + step) + 0x1p-24;
}

}  // namespace culet
