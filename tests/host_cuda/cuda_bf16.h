// See host_cuda.h.
#pragma once

#include "base/float_types.h"
#include "host_cuda.h"

struct __nv_bfloat16 {
  unsigned short bits;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float __bfloat162float(__nv_bfloat16 value) { return culet::Bfloat16ToFloat(value.bits); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return {culet::FloatToBfloat16(value)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
