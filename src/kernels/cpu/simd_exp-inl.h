// The exponential, and the gate made of it, in FP32 vectors.
#if defined(CULET_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_EXP_INL_H_
#undef CULET_SIMD_EXP_INL_H_
#else
#define CULET_SIMD_EXP_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/simd_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// exp(x), within four units in the last place: infinity from 89 on, 0 below -104, NaN of NaN. By
// itself Highway's is 0 of NaN, and beyond 104 any number: its power of two wraps around.
HWY_INLINE VF32 ExpOf(F32 d, VF32 x) {
  const VF32 power = hn::Exp(d, hn::Min(x, hn::Set(d, 104.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, power);
}

// silu(x) = x / (1 + exp(-x)) as x exp(-|x|) / (1 + exp(-|x|)) where x is negative: nothing
// overflows, and results keep their digits down to the subnormal ones. Minus infinity, and NaN,
// give NaN, as the definition does.
HWY_INLINE VF32 SiluOf(F32 d, VF32 x) {
  const VF32 one = hn::Set(d, 1.0f);
  const VF32 below = hn::Neg(hn::Abs(x));
  // From -64 down 32 is added to the exponent, which is exact there, and taken off behind the
  // product with x: exp(-|x|) would be subnormal long before silu(x) is.
  const auto far = hn::Lt(below, hn::Set(d, -64.0f));
  const VF32 power = ExpOf(d, hn::Add(below, hn::IfThenElseZero(far, hn::Set(d, 32.0f))));
  const VF32 taken_off = hn::IfThenElse(far, hn::Set(d, 0x1.c8464f76p-47f), one);  // exp(-32)
  const VF32 scaled = hn::Mul(hn::Mul(x, power), taken_off);
  // exp(-32) or less beside 1 is nothing.
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), scaled, x), hn::Add(one, power));
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
