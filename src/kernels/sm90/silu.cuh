// The activation of gated products.
#pragma once

namespace culet::sm90 {

/// x / (1 + exp(-x)), within 2^-23 |x| of itself and five units in FP32's last place; zero where
/// exp(-x) overflows. Without branches: a correctly rounded inverse has one, and a thread's 64
/// values then wait for one another. PTX ISA 9.7.3 ex2.approx, rcp.approx.
__device__ __forceinline__ float Silu(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -kLog2E));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return x * inverse;
}

}  // namespace culet::sm90
