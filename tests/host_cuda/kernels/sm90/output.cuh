// See host_cuda.h: what src/kernels/sm90/skinny_kernel.cuh takes of output.cuh, on the CPU.
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

}  // namespace culet::sm90
