// Where the rows of a weight of codes lie that a CTA computes, and their scales, for the kernels
// for few tokens.
#pragma once

#include <cstring>

#include "kernels/cuda_ops/code_product.h"
#include "kernels/cuda_ops/codes.cuh"

namespace culet::cuda_ops {

/// The rows of a CTA, by eights: in their order, or eights of the halves of the weight alternate.
struct StreamRows {
  int first, second_eight, third_eight, last;

  __device__ __forceinline__ StreamRows(const CodeProductParams& p, int row0)
      : first(p.halves ? row0 / 2 : row0),
        second_eight(p.halves ? p.n / 2 : 8),
        third_eight(p.halves ? 8 : 16),
        last(p.n - 1) {}
  /// Those beyond the last are the last again: no one reads their sums.
  __device__ __forceinline__ int Of(int eight, int r) const {
    return min(first + eight / 2 * third_eight + eight % 2 * second_eight + r, last);
  }
};

/// A scale or a zero point as it lies in memory; of 4 bits the byte that holds it.
__device__ __forceinline__ std::uint32_t LoadScaleBits(const void* from, DataType type,
                                                       std::int64_t index) {
  if (type == DataType::kFloat16 || type == DataType::kBfloat16) {
    return static_cast<const std::uint16_t*>(from)[index];
  }
  if (type == DataType::kFloat32) return static_cast<const std::uint32_t*>(from)[index];
  return static_cast<const std::uint8_t*>(from)[type == DataType::kUint4 ? index / 2 : index];
}
__device__ __forceinline__ float ScaleOfBits(std::uint32_t bits, DataType type, int odd) {
  if (type == DataType::kBfloat16) return __uint_as_float(bits << 16);
  if (type == DataType::kFloat16) {
    const auto low = static_cast<std::uint16_t>(bits);
    __half half;
    std::memcpy(&half, &low, sizeof half);
    return ToFloat(half);
  }
  if (type == DataType::kFloat32) return __uint_as_float(bits);
  if (type == DataType::kUint4) return static_cast<float>(bits >> 4 * odd & 15);
  return PowerOfCode(bits);
}

}  // namespace culet::cuda_ops
