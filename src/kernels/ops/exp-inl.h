// The exponential in FP32 vectors.
#if defined(CULET_OPS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_OPS_EXP_INL_H_
#undef CULET_OPS_EXP_INL_H_
#else
#define CULET_OPS_EXP_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/simd_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// Highway's exponential of a NaN is 0.
HWY_INLINE VF32 ExpOrNaN(F32 d, VF32 x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x)); }

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
