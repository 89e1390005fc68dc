// The scale of a group of E4M3 values, as docs/numerics.md defines it.
#pragma once

#include <limits>

namespace culet {

inline constexpr float kLargestE4m3 = 448.0f;

/// `amax`: the largest magnitude of the group; `finite`: whether it holds no NaN and no infinity.
inline float ScaleOfE4m3Group(float amax, bool finite) noexcept {
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  const float scale = amax / kLargestE4m3;
  if (scale != 0.0f) return scale;
  // Below about 448 * 2^-150 the division gives zero, which would divide by zero in turn. Such a
  // group takes the smallest scale there is.
  return amax == 0.0f ? 1.0f : std::numeric_limits<float>::denorm_min();
}

}  // namespace culet
