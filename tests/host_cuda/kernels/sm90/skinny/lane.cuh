// See host_cuda.h: src/kernels/sm90/skinny/lane.cuh on the CPU.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "base/float_types.h"
#include "kernels/cuda_ops/mma.cuh"
#include "sm90/format.h"
#include "sm90/sync.cuh"

namespace culet::sm90 {

inline uint8_t* SharedBase() { return reinterpret_cast<uint8_t*>(host_cuda::DynamicShared()); }
inline void Pin(int&) {}
inline void Pin(uint32_t&) {}
inline void Pin(float&) {}
template <class T>
void Pin(T*&) {}
template <class T>
T LoadGlobal(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline void ToHalf(uint32_t four, uint32_t& low, uint32_t& high) {
  const auto half = [&](int i) {
    const auto code = static_cast<std::uint8_t>(four >> (8 * i));
    return static_cast<uint32_t>(FloatToFloat16(Float8E4m3ToFloat(code)));
  };
  low = half(0) | half(1) << 16;
  high = half(2) | half(3) << 16;
}

template <class T>
void MmaOf(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  cuda_ops::MultiplyAdd<T>(d, a, b[0], b[1]);
}
inline void Mma16x8x16(F16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaOf<__half>(d, a, b);
}
inline void Mma16x8x16(Bf16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaOf<__nv_bfloat16>(d, a, b);
}

inline void CopyStream(uint32_t to, const uint8_t* from, bool inside) {
  cuda_ops::CopyAsync16(to, from, inside ? 16 : 0);
}
inline void CopyShared(uint32_t to, const uint8_t* from, bool inside) {
  cuda_ops::CopyAsync16(to, from, inside ? 16 : 0);
}
template <class T>
T LoadShared(uint32_t from) {
  T value;
  std::memcpy(&value, SharedBase() + from, sizeof value);
  return value;
}

template <class T>
void StoreShared(uint32_t to, const T& value) {
  std::memcpy(SharedBase() + to, &value, sizeof value);
}

}  // namespace culet::sm90
