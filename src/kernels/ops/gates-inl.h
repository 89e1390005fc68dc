// The GELU that is made of tanh, and the soft cap, in FP32 vectors.
#if defined(CULET_OPS_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_OPS_GATES_INL_H_
#undef CULET_OPS_GATES_INL_H_
#else
#define CULET_OPS_GATES_INL_H_
#endif

#include "kernels/cpu/simd_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// gelu(x) = x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), for negative x as
// x exp(2 u) / (1 + exp(2 u)), so that nothing overflows.
HWY_INLINE VF32 GeluOf(F32 d, VF32 x) {
  const VF32 one = hn::Set(d, 1.0f);
  const VF32 cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(x, x)), x, x);
  const VF32 power = ExpOf(d, hn::Mul(hn::Set(d, -1.5957691216f), hn::Abs(cubic)));
  const VF32 scaled = hn::Mul(x, power);
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), scaled, x), hn::Add(one, power));
}

// cap * tanh(x / cap), by exp(-2 |x / cap|), which never overflows; small ones by their series, of
// which the difference would keep few bits.
HWY_INLINE VF32 SoftCapOf(F32 d, VF32 x, float cap) {
  const VF32 one = hn::Set(d, 1.0f), ratio = hn::Div(x, hn::Set(d, cap)), size = hn::Abs(ratio);
  const VF32 power = ExpOf(d, hn::Mul(hn::Set(d, -2.0f), size));
  const VF32 far = hn::Div(hn::Sub(one, power), hn::Add(one, power));
  const VF32 square = hn::Mul(size, size);
  const VF32 higher = hn::MulAdd(square, hn::Set(d, -17.0f / 315), hn::Set(d, 2.0f / 15));
  const VF32 series =
      hn::MulAdd(hn::Mul(square, size), hn::MulAdd(square, higher, hn::Set(d, -1.0f / 3)), size);
  const VF32 tanh = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.2f)), series, far);
  return hn::Mul(hn::Set(d, cap), hn::CopySign(tanh, ratio));
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
