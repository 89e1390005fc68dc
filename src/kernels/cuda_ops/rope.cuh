// Angles of the rotary embedding.
#pragma once

#include <cuda_runtime.h>

namespace culet::cuda_ops {

/// The angle in turns is reduced in double, so that position and frequency cost no accuracy; what
/// FP32 loses of the rest is added to first order.
__device__ __forceinline__ void SineCosine(double turns, float* sine, float* cosine) {
  const double half_turns = 2 * (turns - rint(turns));
  const auto large = static_cast<float>(half_turns);
  constexpr float kPi = 3.14159265f;
  const float small = static_cast<float>(half_turns - large) * kPi;
  float s, c;
  sincospif(large, &s, &c);
  *sine = fmaf(c, small, s);
  *cosine = fmaf(-s, small, c);
}

__device__ __forceinline__ void Turn(float& x, float& y, float cosine, float sine) {
  const float a = x, b = y;
  x = a * cosine - b * sine;
  y = a * sine + b * cosine;
}

}  // namespace culet::cuda_ops
