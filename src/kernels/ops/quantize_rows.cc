// Rows quantised to E4M3.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/quantize_rows.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <limits>

#include "kernels/cpu/simd_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// The largest magnitude; NaN when one of the numbers is no finite one.
float LargestMagnitude(const float* x, std::size_t count) {
  const F32 d;
  VF32 largest = hn::Zero(d), nothing = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const VF32 value = LoadRow(d, DataType::kFloat32, x + i, count - i);
    largest = hn::Max(largest, hn::Abs(value));
    nothing = hn::Add(nothing, hn::Sub(value, value));  // 0, or NaN from then on
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest)) + hn::GetLane(hn::SumOfLanes(d, nothing));
}

// E4M3 codes of finite x / scale, whose magnitude is at most 448: nearest, ties to even.
void EncodeE4m3(const float* x, float scale, std::uint8_t* codes, std::size_t count) {
  const F32 d;
  const U32 du32;
  const hn::RebindToSigned<F32> di32;
  const hn::Rebind<std::uint8_t, F32> du8;
  const VF32 divisor = hn::Set(d, scale);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const VF32 value = hn::Div(LoadRow(d, DataType::kFloat32, x + i, count - i), divisor);
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
    const VU32 code = hn::Or(sign, hn::IfThenElse(small, subnormal, normal));
    const auto bytes = hn::DemoteTo(du8, hn::BitCast(di32, code));
    if (count - i >= kLanes) {
      hn::StoreU(bytes, du8, codes + i);
    } else {
      alignas(64) std::uint8_t rest[kLanes];
      hn::StoreU(bytes, du8, rest);
      std::memcpy(codes + i, rest, count - i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>

#include "base/float_types.h"
#include "base/thread_pool.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/row_parts.h"

namespace culet {
HWY_EXPORT(LargestMagnitude);
HWY_EXPORT(EncodeE4m3);

namespace ops {

float QuantizeElements(const float* x, std::size_t count, std::uint8_t* codes) {
  constexpr float kLargest = 448.0f;
  const float amax = HWY_DYNAMIC_DISPATCH(LargestMagnitude)(x, count);
  float scale = amax / kLargest;
  if (scale == 0) scale = amax == 0 ? 1.0f : std::numeric_limits<float>::denorm_min();
  // Beside a subnormal scale quotients are beyond the format, beside a NaN none is a number.
  if (scale >= std::numeric_limits<float>::min()) {
    HWY_DYNAMIC_DISPATCH(EncodeE4m3)(x, scale, codes, count);
  } else {
    for (std::size_t i = 0; i < count; ++i) codes[i] = FloatToFloat8E4m3(x[i] / scale);
  }
  return scale;
}

void QuantizeRows(const float* x, std::int64_t rows, std::int64_t cols, int group,
                  std::uint8_t* values, float* scales) {
  const std::int64_t groups = (cols + group - 1) / group;
  constexpr std::int64_t kTaskGroups = 128;
  const std::int64_t all = rows * groups;
  HostPool().Run(static_cast<int>((all + kTaskGroups - 1) / kTaskGroups), [&](int task, int) {
    const std::int64_t end = std::min(all, (task + 1) * kTaskGroups);
    for (std::int64_t at = task * kTaskGroups; at < end; ++at) {
      const std::int64_t row = at / groups, first = at % groups * group;
      const auto count = static_cast<std::size_t>(std::min<std::int64_t>(group, cols - first));
      const std::int64_t from = row * cols + first;
      scales[at] = QuantizeElements(x + from, count, values + from);
    }
  });
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
