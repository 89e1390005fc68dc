// See host_cuda.h.
#pragma once

#include "base/float_types.h"
#include "host_cuda.h"

struct __nv_fp8_e4m3 {
  unsigned char __x;
  explicit operator float() const { return culet::Float8E4m3ToFloat(__x); }
};
enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3 };
inline unsigned char __nv_cvt_float_to_fp8(float value, __nv_saturation_t,
                                           __nv_fp8_interpretation_t) {
  return culet::FloatToFloat8E4m3(value);
}
inline unsigned short __nv_cvt_float2_to_fp8x2(float2 pair, __nv_saturation_t,
                                               __nv_fp8_interpretation_t) {
  return static_cast<unsigned short>(culet::FloatToFloat8E4m3(pair.x) |
                                     culet::FloatToFloat8E4m3(pair.y) << 8);
}

using __nv_fp8x2_storage_t = unsigned short;
struct __half2_raw {
  unsigned short x, y;
};
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t pair,
                                              __nv_fp8_interpretation_t) {
  const auto half = [](unsigned code) {
    return culet::FloatToFloat16(culet::Float8E4m3ToFloat(static_cast<unsigned char>(code & 0xff)));
  };
  return {half(pair), half(pair >> 8)};
}
