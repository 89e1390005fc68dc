// Elements of C, D and the bias, whose type is known at run time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

#include "kernels/sm90/product/epilogue.h"
#include "sm90/instructions.cuh"

namespace culet::sm90 {

/// Two FP32 values rounded to nearest even, `low` in the lower half.
__device__ __forceinline__ uint32_t PackOutput(OutputType type, float low, float high) {
  return type == OutputType::kBf16 ? PackBf16(low, high) : PackF16(low, high);
}

/// The two 16-bit elements of a word.
__device__ __forceinline__ float2 UnpackOutput(OutputType type, uint32_t packed) {
  if (type == OutputType::kBf16)
    return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xFFFF0000u));
  return __half22float2(*reinterpret_cast<const __half2*>(&packed));
}

/// Element `index`; FP32 holds it exactly.
__device__ __forceinline__ float LoadOutput(const void* data, OutputType type, int64_t index) {
  if (type == OutputType::kF32) return static_cast<const float*>(data)[index];
  return UnpackOutput(type, static_cast<const uint16_t*>(data)[index]).x;
}
__device__ __forceinline__ void StoreOutput(void* data, OutputType type, int64_t index, float v) {
  if (type == OutputType::kF32)
    static_cast<float*>(data)[index] = v;
  else
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(PackOutput(type, v, 0.0f));
}

/// The value of what LoadRaw returns.
__device__ __forceinline__ float FromRaw(OutputType type, uint32_t raw) {
  return type == OutputType::kF32 ? __uint_as_float(raw) : UnpackOutput(type, raw).x;
}

/// Transposes four words of four neighbouring lanes: word i of lane j becomes word j of lane i.
__device__ __forceinline__ void TransposeFour(uint32_t (&word)[4], int lane) {
#pragma unroll
  for (int far = 2; far > 0; far /= 2) {
    const bool upper = (lane & far) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & far) != 0) continue;
      const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, upper ? word[i] : word[i + far], far);
      word[i] = upper ? other : word[i];
      word[i + far] = upper ? word[i + far] : other;
    }
  }
}

/// Whether every row is aligned so that eight elements can be read and written in units of 16
/// bytes.
__device__ __forceinline__ bool IsWide(const void* data, OutputType type, int64_t ld) {
  return ((reinterpret_cast<uint64_t>(data) | (ld * (type == OutputType::kF32 ? 4 : 2))) & 15) == 0;
}

/// Eight elements from `index` on, of which `count` exist. With `wide` in units of 16 bytes.
__device__ __forceinline__ void LoadEight(const void* data, OutputType type, int64_t index,
                                          int count, bool wide, float (&v)[8]) {
  if (!wide) {
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const float one = i < count ? LoadOutput(data, type, index + i) : 0.0f;
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = i == j ? one : v[j];
    }
  } else if (type == OutputType::kF32) {
    const float4* const from =
        reinterpret_cast<const float4*>(static_cast<const float*>(data) + index);
    const float4 low = from[0], high = from[1];
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
  } else {
    const uint4 words = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + index);
    const float2 a = UnpackOutput(type, words.x), b = UnpackOutput(type, words.y),
                 c = UnpackOutput(type, words.z), d = UnpackOutput(type, words.w);
    v[0] = a.x, v[1] = a.y, v[2] = b.x, v[3] = b.y;
    v[4] = c.x, v[5] = c.y, v[6] = d.x, v[7] = d.y;
  }
}

__device__ __forceinline__ void StoreEight(void* data, OutputType type, int64_t index, int count,
                                           bool wide, const float (&v)[8]) {
  if (!wide) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      float one = v[0];
#pragma unroll
      for (int j = 1; j < 8; ++j) one = i == j ? v[j] : one;
      StoreOutput(data, type, index + i, one);
    }
  } else if (type == OutputType::kF32) {
    float4* const to = reinterpret_cast<float4*>(static_cast<float*>(data) + index);
    to[0] = make_float4(v[0], v[1], v[2], v[3]);
    to[1] = make_float4(v[4], v[5], v[6], v[7]);
  } else {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + index) =
        make_uint4(PackOutput(type, v[0], v[1]), PackOutput(type, v[2], v[3]),
                   PackOutput(type, v[4], v[5]), PackOutput(type, v[6], v[7]));
  }
}

}  // namespace culet::sm90
