// See host_cuda.h: src/sm90/instructions.cuh on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/float_types.h"

namespace culet::sm90 {

inline uint32_t PackBf16(float low, float high) {
  return FloatToBfloat16(low) | uint32_t{FloatToBfloat16(high)} << 16;
}
inline uint32_t PackF16(float low, float high) {
  return FloatToFloat16(low) | uint32_t{FloatToFloat16(high)} << 16;
}
inline uint16_t PackE4m3(float low, float high) {
  return static_cast<uint16_t>(FloatToFloat8E4m3(low) | FloatToFloat8E4m3(high) << 8);
}

inline float LargerMagnitude(float a, float b) {
  a = std::fabs(a), b = std::fabs(b);
  return std::isnan(a) || a > b ? a : b;
}

inline float Flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0.0f : x; }
inline float ApproximateExp2(float x) { return Flushed(std::exp2(Flushed(x))); }
inline float ApproximateReciprocal(float x) {
  return Flushed(static_cast<float>(1.0 / Flushed(x)));
}

inline void LoadFour(const void* from, bool there, uint32_t (&word)[4]) {
  std::memset(word, 0, sizeof word);
  if (there) std::memcpy(word, from, sizeof word);
}
inline float2 LoadTwo(const float* from, bool there) {
  return there ? float2{from[0], from[1]} : float2{0.0f, 0.0f};
}
inline uint32_t LoadRaw(const void* data, bool wide, int64_t index) {
  uint32_t raw = 0;
  const int bytes = wide ? 4 : 2;
  std::memcpy(&raw, static_cast<const char*>(data) + index * bytes,
              static_cast<std::size_t>(bytes));
  return raw;
}

inline void PrefetchToL2(const void* from) {
  volatile char read = *static_cast<const char*>(from);
  static_cast<void>(read);
}

}  // namespace culet::sm90
