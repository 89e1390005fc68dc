// Rows of any float type as FP32, in and out.
#if defined(CULET_SIMD_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_MEMORY_INL_H_
#undef CULET_SIMD_MEMORY_INL_H_
#else
#define CULET_SIMD_MEMORY_INL_H_
#endif

#include <cstring>

#include "base/float_types.h"
#include "culet/problem.h"
#include "kernels/cpu/simd_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// Lanes(d) elements of `type` from `p`.
HWY_INLINE VF32 LoadFull(F32 d, DataType type, const void* HWY_RESTRICT p) {
  switch (type) {
    case DataType::kFloat16:
      return FromFloat16(d, static_cast<const std::uint16_t*>(p));
    case DataType::kBfloat16:
      return FromBfloat16(d, static_cast<const std::uint16_t*>(p));
    case DataType::kFloat8_e4m3:
      return FromE4m3(d, static_cast<const std::uint8_t*>(p));
    default:
      return hn::LoadU(d, static_cast<const float*>(p));
  }
}

// The first `count` <= Lanes(d) elements, zeros behind them; nothing beyond is read.
HWY_INLINE VF32 LoadRow(F32 d, DataType type, const void* HWY_RESTRICT p, std::size_t count) {
  if (HWY_LIKELY(count >= kLanes)) return LoadFull(d, type, p);
  alignas(64) std::byte buffer[kLanes * sizeof(float)] = {};
  std::memcpy(buffer, p, count * SizeOf(type));
  return LoadFull(d, type, buffer);
}

// Rounds to nearest even. NaN stays NaN.
HWY_INLINE void StoreFull(F32 d, VF32 v, DataType type, void* HWY_RESTRICT p) {
  switch (type) {
    case DataType::kFloat16: {
#if CULET_SIMD_F16
      const hn::Rebind<hwy::float16_t, F32> df16;
      const hn::Rebind<std::uint16_t, F32> du16;
      hn::StoreU(hn::BitCast(du16, hn::DemoteTo(df16, v)), du16, static_cast<std::uint16_t*>(p));
#else
      alignas(64) float lanes[kLanes];
      hn::Store(v, d, lanes);
      for (std::size_t i = 0; i < kLanes; ++i) {
        static_cast<std::uint16_t*>(p)[i] = FloatToFloat16(lanes[i]);
      }
#endif
      return;
    }
    case DataType::kBfloat16: {
      // Highway 1.0.3 truncates, so the rounding is here.
      const hn::RebindToUnsigned<F32> du32;
      const hn::Rebind<std::uint16_t, F32> du16;
      const auto bits = hn::BitCast(du32, v);
      const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
      const auto rounded = hn::Add(hn::Add(bits, hn::Set(du32, 0x7fffu)), odd);
      const auto quiet = hn::Or(bits, hn::Set(du32, 0x00400000u));
      const auto is_nan = hn::RebindMask(du32, hn::IsNaN(v));
      const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
      const hn::RebindToSigned<F32> di32;
      hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di32, upper)), du16,
                 static_cast<std::uint16_t*>(p));
      return;
    }
    default:
      hn::StoreU(v, d, static_cast<float*>(p));
  }
}

HWY_INLINE void StoreRow(F32 d, VF32 v, DataType type, void* HWY_RESTRICT p, std::size_t count) {
  if (HWY_LIKELY(count >= kLanes)) return StoreFull(d, v, type, p);
  alignas(64) std::byte buffer[kLanes * sizeof(float)];
  StoreFull(d, v, type, buffer);
  std::memcpy(p, buffer, count * SizeOf(type));
}

inline const void* ElementAt(const void* data, const MatrixLayout& layout, std::int64_t row,
                             std::int64_t col) {
  const std::int64_t index =
      layout.order == Order::kRowMajor ? row * layout.ld + col : row + col * layout.ld;
  return static_cast<const std::byte*>(data) +
         index * static_cast<std::int64_t>(SizeOf(layout.type));
}

// out[0, count) = A[row, begin .. begin + count) as FP32.
inline void LoadActivations(const GemmArgs& args, std::int64_t row, std::int64_t begin,
                            std::size_t count, float* HWY_RESTRICT out) {
  const F32 d;
  const DataType type = args.Adesc.type;
  if (args.Adesc.order == Order::kRowMajor) {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const std::size_t left = count - i < kLanes ? count - i : kLanes;
      const VF32 v = LoadRow(
          d, type, ElementAt(args.A, args.Adesc, row, begin + static_cast<std::int64_t>(i)), left);
      if (left == kLanes) {
        hn::StoreU(v, d, out + i);
      } else {
        StoreRow(d, v, DataType::kFloat32, out + i, left);
      }
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const void* p = ElementAt(args.A, args.Adesc, row, begin + static_cast<std::int64_t>(i));
    out[i] = hn::GetLane(LoadRow(d, type, p, 1));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
