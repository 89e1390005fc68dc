// See host_cuda.h.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float_types.h"
#include "host_cuda.h"

struct __nv_bfloat16 {
  unsigned short bits;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float __bfloat162float(__nv_bfloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return {culet::FloatToBfloat16(value)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
