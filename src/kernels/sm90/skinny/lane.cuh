// The skinny kernels' PTX. tests/host_cuda has CPU versions.
#pragma once

#include <cstdint>

#include "sm90/format.h"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::sm90 {

/// The CTA's dynamic shared memory.
__device__ __forceinline__ uint8_t* SharedBase() {
  extern __shared__ __align__(16) uint8_t shared_base[];
  return shared_base;
}

/// Hides the value from the compiler, so that it is computed, or the kernel argument read, here
/// and not after a wait.
__device__ __forceinline__ void Pin(int& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void Pin(uint32_t& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void Pin(float& value) { asm volatile("" : "+f"(value)); }
template <class T>
__device__ __forceinline__ void Pin(T*& value) {
  asm volatile("" : "+l"(value));
}

/// Volatile: keeps its order among other asm volatile statements.
template <class T>
__device__ __forceinline__ T LoadGlobal(const void* from);
template <>
__device__ __forceinline__ float LoadGlobal<float>(const void* from) {
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
  return v;
}
template <>
__device__ __forceinline__ float4 LoadGlobal<float4>(const void* from) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
template <>
__device__ __forceinline__ uint4 LoadGlobal<uint4>(const void* from) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

/// Four E4M3 as F16, exactly: the first two into `low`. PTX ISA 9.7.9.22 cvt.rn.f16x2.e4m3x2.
__device__ __forceinline__ void ToHalf(uint32_t four, uint32_t& low, uint32_t& high) {
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
      : "=r"(low), "=r"(high)
      : "r"(four));
}

/// d += a b: 16 x 16 by 16 x 8. PTX ISA 9.7.14.5 mma.m16n8k16.
#define CULET_MMA(type)                                                      \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
__device__ __forceinline__ void Mma16x8x16(F16, float (&d)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
  CULET_MMA("f16");
}
__device__ __forceinline__ void Mma16x8x16(Bf16, float (&d)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
  CULET_MMA("bf16");
}
#undef CULET_MMA

/// 16 bytes from global to shared memory, zeros where not `inside`. PTX ISA 9.7.9.25.3 cp.async.
__device__ __forceinline__ void CopyStream(uint32_t to, const uint8_t* from, bool inside) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
      "l"(from), "r"(inside ? 16 : 0), "l"(EvictFirst())
      : "memory");
}
/// CopyStream for data that other warps read too.
__device__ __forceinline__ void CopyShared(uint32_t to, const uint8_t* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}

template <class T>
__device__ __forceinline__ T LoadShared(uint32_t from);
template <>
__device__ __forceinline__ uint4 LoadShared<uint4>(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
template <>
__device__ __forceinline__ float2 LoadShared<float2>(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}
template <>
__device__ __forceinline__ float LoadShared<float>(uint32_t from) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
  return v;
}

__device__ __forceinline__ void StoreShared(uint32_t to, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}
__device__ __forceinline__ void StoreShared(uint32_t to, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

}  // namespace culet::sm90
