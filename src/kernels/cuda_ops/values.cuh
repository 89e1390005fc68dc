// Elements in vectors, computed on in FP32; sums of a warp.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace culet::cuda_ops {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ __forceinline__ float ToFloat(float value) { return value; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float ToFloat(__half value) { return __half2float(value); }
__device__ __forceinline__ float ToFloat(__nv_fp8_e4m3 value) { return static_cast<float>(value); }

__device__ __forceinline__ void Round(float value, float* to) { *to = value; }
__device__ __forceinline__ void Round(float value, __nv_bfloat16* to) {
  *to = __float2bfloat16_rn(value);
}
__device__ __forceinline__ void Round(float value, __half* to) { *to = __float2half_rn(value); }

/// The code of a value in a cache of E4M3, as culet/graph.h says.
__device__ __forceinline__ std::uint8_t CacheCode(float value, float scale) {
  constexpr std::uint8_t kNan = 0x7F;
  const float quotient = __fdiv_rn(value, scale);
  const bool finite = (__float_as_uint(value) & 0x7FFFFFFFu) < 0x7F800000u;
  if (!finite || quotient != quotient) return kNan;
  return static_cast<std::uint8_t>(__nv_cvt_float_to_fp8(quotient, __NV_SATFINITE, __NV_E4M3));
}

/// Two codes of E4M3 as float16, the first in the low half: exact, NaN included.
__device__ __forceinline__ std::uint32_t PairOfCodes(std::uint32_t codes) {
  const __half2_raw pair =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
  return static_cast<std::uint32_t>(pair.x) | static_cast<std::uint32_t>(pair.y) << 16;
}

__device__ __forceinline__ float Silu(float x) { return x / (1.0f + expf(-x)); }

/// The one that is made of tanh: 0.5 (1 + tanh u) is 1 / (1 + exp(-2 u)).
__device__ __forceinline__ float GeluTanh(float x) {
  constexpr float kTwice = 1.5957691216f;  // 2 sqrt(2 / pi)
  return x / (1.0f + expf(-kTwice * fmaf(0.044715f * x * x, x, x)));
}

/// What a value is once it was stored as a T.
template <class T>
__device__ __forceinline__ float Rounded(float value) {
  T stored;
  Round(value, &stored);
  return ToFloat(stored);
}

__device__ __forceinline__ float NotANumber() { return __uint_as_float(0x7FC00000u); }

/// `kCount` elements as they lie in memory, moved in as few pieces as there can be.
template <class T, int kCount>
struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Pack {
  T elements[kCount];
};

/// Requires: `from` aligned to 16 bytes, or to the vector where that is smaller.
template <int kCount, class T>
__device__ __forceinline__ void Load(const T* from, float (&to)[kCount]) {
  const auto pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = ToFloat(pack.elements[i]);
}

/// Rounds once to nearest even. Requires: as Load.
template <int kCount, class T>
__device__ __forceinline__ void Store(const float (&from)[kCount], T* to) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) Round(from[i], &pack.elements[i]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

/// Elements of a key or value in their cache; of E4M3 their codes. Requires: as Load.
template <int kCount, class Cache>
__device__ __forceinline__ void StoreCached(const float (&from)[kCount], Cache* to, float scale) {
  if constexpr (std::is_same_v<Cache, __nv_fp8_e4m3>) {
    Pack<std::uint8_t, kCount> pack;
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.elements[i] = CacheCode(from[i], scale);
    *reinterpret_cast<Pack<std::uint8_t, kCount>*>(to) = pack;
  } else {
    Store(from, to);
  }
}

/// The sum over groups of `kLanes` lanes, in all of them; all lanes of the warp take part.
template <int kLanes>
__device__ __forceinline__ float SumLanes(float value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

template <int kLanes>
__device__ __forceinline__ float MaxLanes(float value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

}  // namespace culet::cuda_ops
