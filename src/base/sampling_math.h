// The definition of sampling in whole numbers, so that every device draws the same token from the
// same logits: weights of tokens are integers, sums have no order, and the one random number of a
// draw comes from a counter. One source for host and device.
#pragma once

#include <bit>
#include <cstdint>
#include <tuple>

#include "culet/layout/host_device.h"
#include "culet/sampling.h"

namespace culet::sampling {

/// A SamplingRow as kernels read it.
struct Row {
  float scale;          ///< log2(e) / temperature; 0: the largest logit
  std::uint32_t top_k;  ///< 0: all
  std::uint64_t top_p;  ///< in parts of 2^32
  std::uint64_t min_p;  ///< in parts of 2^32
  std::uint64_t seed;
};

inline constexpr int kWords = std::tuple_size_v<SamplingRow>;
inline constexpr std::uint64_t kOne = std::uint64_t{1} << 32;  ///< the weight of the largest logit

CULET_HOST_DEVICE inline float FloatOf(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

CULET_HOST_DEVICE inline std::uint32_t BitsOf(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

CULET_HOST_DEVICE inline Row ReadRow(const std::int32_t* from) {
  const auto word = [&](int i) { return static_cast<std::uint32_t>(from[i]); };
  const auto pair = [&](int i) { return word(i) | std::uint64_t{word(i + 1)} << 32; };
  return {FloatOf(word(0)), word(1), pair(2), pair(4), pair(6)};
}

/// Larger for larger numbers, equal for -0 and 0, never 0. Requires: not NaN.
CULET_HOST_DEVICE inline std::uint32_t OrderOf(float value) {
  const std::uint32_t bits = BitsOf(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
CULET_HOST_DEVICE inline float ValueOf(std::uint32_t order) {
  return FloatOf((order & 0x80000000u) != 0 ? order & 0x7FFFFFFFu : ~order);
}

CULET_HOST_DEVICE inline std::uint32_t MulHigh(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
}

/// floor(value * share / 2^32). Requires: value < 2^63, share <= 2^32.
CULET_HOST_DEVICE inline std::uint64_t ShareOf(std::uint64_t value, std::uint64_t share) {
  return (value >> 32) * share + ((value & 0xFFFFFFFFu) * share >> 32);
}

/// floor(a * b / 2^64).
CULET_HOST_DEVICE inline std::uint64_t MulHigh64(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + (((middle & 0xFFFFFFFFu) + a0 * b1) >> 32);
}

/// A token's probability in parts of 2^32 of the likeliest one's: 2^((logit - largest) scale), to
/// 1e-8 and less than one part; 0 from 33 octaves down. Single precision's own operations and
/// whole numbers from there on: the same bits everywhere.
CULET_HOST_DEVICE inline std::uint64_t WeightOf(float logit, float largest, float scale) {
  const float octaves = (largest - logit) * scale;
  if (!(octaves < 33.0f)) return 0;
  const auto fixed = static_cast<std::uint32_t>(octaves * 0x1p26f);
  const std::uint32_t x = fixed << 6;  // the fraction, in parts of 2^32
  // 2^-x = 1 - x (c1 - x (c2 - ...)), fitted on [0, 1).
  std::uint32_t sum = 0x00078809u;
  sum = 0x0054A612u - MulHigh(x, sum);
  sum = 0x0274F388u - MulHigh(x, sum);
  sum = 0x0E353290u - MulHigh(x, sum);
  sum = 0x3D7F7506u - MulHigh(x, sum);
  sum = 0xB17217DFu - MulHigh(x, sum);
  return (kOne - MulHigh(x, sum)) >> (fixed >> 26);
}

/// 64 random bits: of Philox-4x32-10 (Salmon, Moraes, Dror, Shaw, 2011), the first two words of the
/// block with number `counter` under the key `seed`.
CULET_HOST_DEVICE inline std::uint64_t RandomBits(std::uint64_t seed, std::uint64_t counter) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32), c2 = 0, c3 = 0;
  std::uint32_t k0 = static_cast<std::uint32_t>(seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0, b = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(b);
    c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0 | std::uint64_t{c1} << 32;
}

}  // namespace culet::sampling
