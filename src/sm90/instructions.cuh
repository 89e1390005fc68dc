// Instructions of a single thread that CUDA C++ has no name for: conversions, approximations,
// predicated loads.
#pragma once

#include <cstdint>

namespace culet::sm90 {

/// Two FP32 values as BF16, `low` in the lower half, round to nearest even. PTX ISA 9.7.9
/// cvt.rn.bf16x2.f32.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// The same as F16, where values beyond 65504 become infinite. PTX ISA 9.7.9 cvt.rn.f16x2.f32.
__device__ __forceinline__ uint32_t PackF16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// Two values as E4M3, `low` in the lower byte. Larger magnitudes become 448. PTX ISA 9.7.9 cvt.
__device__ __forceinline__ uint16_t PackE4m3(float low, float high) {
  uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}

/// The larger magnitude of two values, NaN if one of them is. PTX ISA 9.7.3 max.
__device__ __forceinline__ float LargerMagnitude(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
  return larger;
}

/// 2^x. PTX ISA 9.7.3 ex2.approx.
__device__ __forceinline__ float ApproximateExp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

/// 1 / x. PTX ISA 9.7.3 rcp.approx.
__device__ __forceinline__ float ApproximateReciprocal(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

/// Loads four words, or zeros unless `there`. The load is predicated: with branches, loads in a row
/// would wait for each other. Requires: aligned to 16 bytes. PTX ISA 9.7.9 ld.
__device__ __forceinline__ void LoadFour(const void* from, bool there, uint32_t (&word)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = 0;
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.u32 there, %5, 0;\n"
      "@there ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(word[0]), "+r"(word[1]), "+r"(word[2]), "+r"(word[3])
      : "l"(__cvta_generic_to_global(from)), "r"(uint32_t{there}));
}
/// The same for two floats. Requires: aligned to 8 bytes.
__device__ __forceinline__ float2 LoadTwo(const float* from, bool there) {
  float2 v = {0.0f, 0.0f};
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.u32 there, %3, 0;\n"
      "@there ld.global.v2.f32 {%0, %1}, [%2];\n}"
      : "+f"(v.x), "+f"(v.y)
      : "l"(__cvta_generic_to_global(from)), "r"(uint32_t{there}));
  return v;
}
/// Element `index` as it lies in memory, `wide` ones of 32 bits, others of 16, likewise.
__device__ __forceinline__ uint32_t LoadRaw(const void* data, bool wide, int64_t index) {
  uint32_t raw;
  asm volatile(
      "{\n.reg .pred wide;\n.reg .b16 half;\nsetp.ne.u32 wide, %2, 0;\nmov.b16 half, 0;\n"
      "@!wide ld.global.b16 half, [%1];\ncvt.u32.u16 %0, half;\n@wide ld.global.b32 %0, [%1];\n}"
      : "=&r"(raw)
      : "l"(__cvta_generic_to_global(static_cast<const char*>(data) + index * (wide ? 4 : 2))),
        "r"(uint32_t{wide}));
  return raw;
}

/// Fetches the line of `from`, in global memory, into L2. PTX ISA 9.7.9 prefetch.
__device__ __forceinline__ void PrefetchToL2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)));
}

}  // namespace culet::sm90
