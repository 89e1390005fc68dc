// See host_cuda.h.
#pragma once

#include "base/float_types.h"
#include "host_cuda.h"

struct __half {
  unsigned short bits;
};
struct __half2 {
  __half x, y;
};
inline float __half2float(__half value) { return culet::Float16ToFloat(value.bits); }
inline __half __float2half_rn(float value) { return {culet::FloatToFloat16(value)}; }
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline float2 __half22float2(__half2 pair) { return {__half2float(pair.x), __half2float(pair.y)}; }
