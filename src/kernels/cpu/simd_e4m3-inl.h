// Vectors of FP32 rounded to E4M3.
#if defined(CULET_SIMD_E4M3_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_E4M3_INL_H_
#undef CULET_SIMD_E4M3_INL_H_
#else
#define CULET_SIMD_E4M3_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/simd_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// Codes in 32-bit lanes of values whose magnitude is at most 448: nearest, ties to even.
HWY_INLINE VU32 E4m3CodesOf(F32 d, VF32 value) {
  const U32 du32;
  const VU32 bits = hn::BitCast(du32, value);
  const VU32 sign = hn::ShiftRight<24>(hn::And(bits, hn::Set(du32, 0x80000000u)));
  const VU32 magnitude = hn::And(bits, hn::Set(du32, 0x7fffffffu));
  // Normal numbers: 20 bits of the fraction are rounded away, the exponent's bias becomes 7.
  const VU32 odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(du32, 1u));
  const VU32 rounded = hn::Add(hn::Add(magnitude, hn::Set(du32, 0x7ffffu)), odd);
  const VU32 normal = hn::Sub(hn::ShiftRight<20>(rounded), hn::Set(du32, (127u - 7u) << 3));
  // Below 2^-6 a code is a multiple of 2^-9: adding 2^14 leaves exactly those bits, rounded.
  const VF32 anchor = hn::Set(d, 0x1p14f);
  const VU32 subnormal = hn::Sub(hn::BitCast(du32, hn::Add(hn::BitCast(d, magnitude), anchor)),
                                 hn::BitCast(du32, anchor));
  const auto small = hn::Lt(magnitude, hn::Set(du32, (127u - 6u) << 23));
  return hn::Or(sign, hn::IfThenElse(small, subnormal, normal));
}

// The first `count` codes, at most all lanes.
HWY_INLINE void StoreCodes(VU32 codes, std::uint8_t* HWY_RESTRICT to, std::size_t count) {
  const hn::RebindToSigned<F32> di32;
  const hn::Rebind<std::uint8_t, F32> du8;
  const auto bytes = hn::DemoteTo(du8, hn::BitCast(di32, codes));
  if (count >= kLanes) {
    hn::StoreU(bytes, du8, to);
  } else {
    alignas(64) std::uint8_t rest[kLanes];
    hn::StoreU(bytes, du8, rest);
    std::memcpy(to, rest, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
