// The activation of gated products.
#pragma once

#include "sm90/instructions.cuh"

namespace culet::sm90 {

/// x / (1 + exp(-x)), within 2^-23 |x| of itself and five FP32 ulp; zero where exp(-x) overflows.
/// Branch-free: a correctly rounded reciprocal has a branch, which would serialise a thread's 64
/// values.
__device__ __forceinline__ float Silu(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  return x * ApproximateReciprocal(1.0f + ApproximateExp2(x * -kLog2E));
}

/// out[i] = Silu(gate[i]) * up[i], within twelve ulp besides the exponential's error. The four
/// share one reciprocal: 5 special-function operations instead of 8. Returns false, with `out`
/// undefined, if the product of the four 1 + exp(-x) has no FP32 reciprocal: gates that sum to -87
/// or less, or a NaN.
__device__ __forceinline__ bool GateFour(const float (&gate)[4], const float (&up)[4],
                                         float (&out)[4]) {
  constexpr float kLog2E = 1.4426950408889634f;
  float power[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) power[i] = ApproximateExp2(gate[i] * -kLog2E);
  const float second = 1.0f + power[1], fourth = 1.0f + power[3];
  const float low = fmaf(power[0], second, second), high = fmaf(power[2], fourth, fourth),
              all = low * high;
  const float inverse = ApproximateReciprocal(all);
  const float of_low = inverse * high, of_high = inverse * low;
  out[0] = gate[0] * (of_low * second) * up[0];
  out[1] = gate[1] * fmaf(of_low, power[0], of_low) * up[1];
  out[2] = gate[2] * (of_high * fourth) * up[2];
  out[3] = gate[3] * fmaf(of_high, power[2], of_high) * up[3];
  return all < 0x1p126f;
}

}  // namespace culet::sm90
