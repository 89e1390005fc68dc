// A total order of floating numbers and their indices, so that the largest is the same in whatever
// order candidates are compared.
#pragma once

#include <cstdint>

namespace culet::cuda_ops {

/// Larger for larger values, for NaN largest, for a lower index among equals. Neither 0 nor the
/// largest number.
__device__ __forceinline__ std::uint64_t KeyOf(float value, std::uint32_t index) {
  const std::uint32_t bits = __float_as_uint(value + 0.0f);  // -0 equals 0
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const std::uint32_t order = nan                         ? 0xFFFFFFFEu
                              : (bits & 0x80000000u) != 0 ? ~bits
                                                          : bits | 0x80000000u;
  return std::uint64_t{order} << 32 | (0xFFFFFFFFu - index);
}

__device__ __forceinline__ std::int32_t IndexOf(std::uint64_t key) {
  return static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<std::uint32_t>(key));
}

/// The largest key of a warp, in all of its lanes.
__device__ __forceinline__ std::uint64_t LargestOfWarp(std::uint64_t key) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const std::uint64_t other = __shfl_xor_sync(0xFFFFFFFFu, key, offset);
    key = other > key ? other : key;
  }
  return key;
}

}  // namespace culet::cuda_ops
