// The scratch memory of a task of HeadMulMat.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/attention_tile.h"

namespace culet::ops {

/// Rows of X that are multiplied together.
inline constexpr int kHeadRows = 32;

/// Vectors of k elements take `padded` floats, zeros behind their own.
struct HeadScratch {
  static std::size_t Padded(std::int64_t k) noexcept {
    return (static_cast<std::size_t>(k) + kHeadPad - 1) / kHeadPad * kHeadPad;
  }
  static std::size_t Floats(std::int64_t k) noexcept {
    return (kKeyBlock + kHeadRows) * Padded(k) + kHeadRows * kKeyBlock;
  }

  HeadScratch(std::int64_t k, float* memory) noexcept
      : padded(Padded(k)),
        lines(memory),
        queries(lines + kKeyBlock * padded),
        sums(queries + kHeadRows * padded) {}

  std::size_t padded;
  float* lines;    ///< rows of the weight, converted
  float* queries;  ///< rows of X
  float* sums;     ///< kKeyBlock a row
};

}  // namespace culet::ops
