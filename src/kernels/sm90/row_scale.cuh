// The scale of a row's quantised values, and their E4M3 codes.
#pragma once

#include <cstdint>

namespace culet::sm90 {

/// The larger magnitude of two values, NaN if one of them is. PTX ISA 9.7.3 max.
__device__ __forceinline__ float LargerMagnitude(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
  return larger;
}

/// The largest magnitude of the lanes whose numbers differ from this lane's only in the bits kFirst
/// to kLast.
template <int kFirst, int kLast>
__device__ __forceinline__ float LargestOfLanes(float magnitude) {
#pragma unroll
  for (int apart = kFirst; apart <= kLast; apart *= 2)
    magnitude = LargerMagnitude(magnitude, __shfl_xor_sync(0xFFFFFFFFu, magnitude, apart));
  return magnitude;
}

/// Two values as E4M3, `low` in the lower byte. Larger magnitudes become 448. PTX ISA 9.7.9 cvt.
__device__ __forceinline__ uint16_t PackE4m3(float low, float high) {
  uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}

/// What a row of D is divided by, and its inverse.
struct RowScale {
  float scale, inverse;
};

/// FP32 cannot invert the scale of magnitudes below this. The inverse is then that of 2^100 times
/// the scale.
inline constexpr float kLiftsBelow = 0x1p-90f;

/// The scale of values whose largest magnitude is `largest`, by QuantizeGroups' rule. Requires:
/// `largest` not below kLiftsBelow.
__device__ __forceinline__ RowScale ScaleOfNormal(float largest) {
  // Rounded as a division is: one Newton step. An infinity leaves NaN there.
  constexpr float kInverse = 1.0f / 448.0f;
  const float quotient = largest * kInverse;
  const float scale = fmaf(fmaf(-quotient, 448.0f, largest), kInverse, quotient);
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(scale));
  return {scale, inverse};
}

/// The same for any magnitude. `lifts`: it is below kLiftsBelow.
__device__ __forceinline__ RowScale ScaleOfLargest(float largest, bool& lifts) {
  lifts = largest < kLiftsBelow;
  if (!lifts) return ScaleOfNormal(largest);
  // Zero cannot be divided by, so the smallest number stands in for it.
  const float scale = largest == 0.0f ? 1.0f : fmaxf(__fdiv_rn(largest, 448.0f), 0x1p-149f);
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(scale * 0x1p100f));
  return {scale, inverse};
}

}  // namespace culet::sm90
