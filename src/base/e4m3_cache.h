// What a cache of keys and values holds in E4M3: codes times the scale of their head.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/float_types.h"

namespace culet {

/// A NaN; the format has no infinities.
inline constexpr std::uint8_t kE4m3Nan = 0x7f;

/// The code nearest to value / scale in FP32, an even one of two. Beyond 448 it saturates; what is
/// not finite is NaN.
inline std::uint8_t E4m3CacheCode(float value, float scale) noexcept {
  const float quotient = value / scale;
  return std::isfinite(value) && !std::isnan(quotient) ? FloatToFloat8E4m3(quotient) : kE4m3Nan;
}

}  // namespace culet
