// The scale of a row's quantised values.
#pragma once

#include "sm90/instructions.cuh"

namespace culet::sm90 {

/// The largest magnitude of the lanes whose numbers differ from this lane's only in the bits kFirst
/// to kLast.
template <int kFirst, int kLast>
__device__ __forceinline__ float LargestOfLanes(float magnitude) {
#pragma unroll
  for (int apart = kFirst; apart <= kLast; apart *= 2)
    magnitude = LargerMagnitude(magnitude, __shfl_xor_sync(0xFFFFFFFFu, magnitude, apart));
  return magnitude;
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
  return {scale, ApproximateReciprocal(scale)};
}

/// The same for any magnitude. `lifts`: it is below kLiftsBelow.
__device__ __forceinline__ RowScale ScaleOfLargest(float largest, bool& lifts) {
  lifts = largest < kLiftsBelow;
  if (!lifts) return ScaleOfNormal(largest);
  // Zero cannot be divided by, so the smallest number stands in for it.
  const float scale = largest == 0.0f ? 1.0f : fmaxf(__fdiv_rn(largest, 448.0f), 0x1p-149f);
  return {scale, ApproximateReciprocal(scale * 0x1p100f)};
}

}  // namespace culet::sm90
