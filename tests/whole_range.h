// Numbers of all of FP32's range, and how far a result may be from what double precision makes.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace culet {

/// Every exponent with some fractions and both signs, subnormal numbers, zeros, infinities, NaN,
/// and the whole numbers down to -1,023, where exponentials wrap around if they do.
inline std::vector<float> WholeRange() {
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t fraction : {0u, 1u, 0x2aaaabu, 0x400000u, 0x7fffffu}) {
      for (const std::uint32_t sign : {0u, 0x80000000u}) {
        values.push_back(std::bit_cast<float>(sign | exponent << 23 | fraction));
      }
    }
  }
  for (int i = 0; i < 1024; ++i) values.push_back(static_cast<float>(-i));
  // Between the places where the exponential and the sigmoid leave the normal numbers.
  for (int i = 0; i < 512; ++i) values.push_back(-60.0f - static_cast<float>(i) / 8);
  return values;
}

inline double SiluInDouble(double x) { return x / (1 + std::exp(-x)); }

/// Whether `found` is `expected` within a share of it and an amount; infinities and NaN exactly. An
/// `expected` beyond `largest` less that share may be an infinity.
inline bool IsNear(double found, double expected, double share, double amount,
                   double largest = 3.4028234663852886e38) {
  if (std::isnan(expected)) return std::isnan(found);
  if (std::isnan(found)) return false;
  if (std::isinf(expected)) return found == expected;
  if (std::isinf(found)) {
    return std::fabs(expected) > largest * (1 - share) && (found > 0) == (expected > 0);
  }
  return std::fabs(found - expected) <= share * std::fabs(expected) + amount;
}

}  // namespace culet
