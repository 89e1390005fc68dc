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

/// The value of a key, if it is none of -0 and NaN: then it is 0 or NaN.
__device__ __forceinline__ float ValueOf(std::uint64_t key) {
  const auto order = static_cast<std::uint32_t>(key >> 32);
  return __uint_as_float((order & 0x80000000u) != 0 ? order ^ 0x80000000u : ~order);
}

__device__ __forceinline__ std::int32_t IndexOf(std::uint64_t key) {
  return static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<std::uint32_t>(key));
}

/// The largest key of a warp, in all of its lanes: the largest upper half, then the largest lower
/// half of those that have it.
__device__ __forceinline__ std::uint64_t LargestOfWarp(std::uint64_t key) {
  const auto upper = static_cast<std::uint32_t>(key >> 32), lower = static_cast<std::uint32_t>(key);
  const std::uint32_t most = __reduce_max_sync(0xFFFFFFFFu, upper);
  return std::uint64_t{most} << 32 | __reduce_max_sync(0xFFFFFFFFu, upper == most ? lower : 0u);
}

}  // namespace culet::cuda_ops
