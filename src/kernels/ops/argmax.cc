// Arg max of rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/argmax.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstddef>
#include <limits>

#include "kernels/cpu/simd_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// The largest of the whole vectors at the front; NaN when one of them is NaN.
float LargestOf(const float* x, std::size_t count) {
  const F32 d;
  VF32 largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto nan = hn::IsNaN(largest);
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    const VF32 value = hn::LoadU(d, x + i);
    nan = hn::Or(nan, hn::IsNaN(value));
    largest = hn::Max(largest, value);
  }
  if (!hn::AllFalse(d, nan)) return std::numeric_limits<float>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet {
HWY_EXPORT(LargestOf);

namespace ops {

void ArgMax(const float* x, std::int32_t* out, std::int64_t rows, std::int64_t cols) {
  // A multiple of every vector's length.
  constexpr std::int64_t kBlock = 1024;
  HostPool().Run(static_cast<int>(rows), [=](int row, int) {
    const float* const in = x + row * cols;
    std::int64_t best = 0;
    for (std::int64_t first = 0; first < cols && !std::isnan(in[best]); first += kBlock) {
      const std::int64_t end = std::min(cols, first + kBlock);
      // A block that holds nothing larger is passed by.
      if (end - first == kBlock && HWY_DYNAMIC_DISPATCH(LargestOf)(
                                       in + first, static_cast<std::size_t>(kBlock)) <= in[best]) {
        continue;
      }
      for (std::int64_t i = first; i < end && !std::isnan(in[best]); ++i) {
        if (in[i] > in[best] || std::isnan(in[i])) best = i;
      }
    }
    out[row] = static_cast<std::int32_t>(best);
  });
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
