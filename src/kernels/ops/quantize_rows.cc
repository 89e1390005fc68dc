// Rows quantised to E4M3.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/quantize_rows.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <limits>

#include "kernels/cpu/simd_memory-inl.h"
#include "kernels/ops/e4m3-inl.h"

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
  const VF32 divisor = hn::Set(d, scale);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const VF32 value = hn::Div(LoadRow(d, DataType::kFloat32, x + i, count - i), divisor);
    StoreCodes(E4m3CodesOf(d, value), codes + i, count - i);
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
