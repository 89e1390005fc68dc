// See host_cuda.h: src/kernels/sm90/output.cuh on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/float_types.h"
#include "kernels/sm90/epilogue.h"

namespace culet::sm90 {

inline uint32_t PackOutput(OutputType type, float low, float high) {
  const auto half = [&](float v) -> uint32_t {
    return type == OutputType::kBf16 ? FloatToBfloat16(v) : FloatToFloat16(v);
  };
  return half(low) | half(high) << 16;
}
inline float2 UnpackOutput(OutputType type, uint32_t packed) {
  const auto value = [&](uint32_t bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    return type == OutputType::kBf16 ? Bfloat16ToFloat(half) : Float16ToFloat(half);
  };
  return {value(packed & 0xFFFFu), value(packed >> 16)};
}
inline float LoadOutput(const void* data, OutputType type, int64_t index) {
  if (type == OutputType::kF32) return static_cast<const float*>(data)[index];
  return UnpackOutput(type, static_cast<const uint16_t*>(data)[index]).x;
}
inline void StoreOutput(void* data, OutputType type, int64_t index, float v) {
  if (type == OutputType::kF32)
    static_cast<float*>(data)[index] = v;
  else
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(PackOutput(type, v, 0.0f));
}

inline bool IsWide(const void* data, OutputType type, int64_t ld) {
  return ((reinterpret_cast<uint64_t>(data) | static_cast<uint64_t>(ld * BytesOf(type))) & 15) == 0;
}
inline void LoadEight(const void* data, OutputType type, int64_t index, int count, bool,
                      float (&v)[8]) {
  for (int i = 0; i < 8; ++i) v[i] = i < count ? LoadOutput(data, type, index + i) : 0.0f;
}
inline void StoreEight(void* data, OutputType type, int64_t index, int count, bool,
                       const float (&v)[8]) {
  for (int i = 0; i < count; ++i) StoreOutput(data, type, index + i, v[i]);
}

}  // namespace culet::sm90
