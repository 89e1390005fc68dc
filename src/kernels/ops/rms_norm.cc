// RMS norm.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/rms_norm.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/cpu/simd_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

void NormGroup(const float* x, const float* gamma, float epsilon, float* out, std::size_t width) {
  const F32 d;
  VF32 sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  std::size_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
    for (std::size_t v = 0; v < 4; ++v) {
      const VF32 value = hn::LoadU(d, x + i + v * kLanes);
      sums[v] = hn::MulAdd(value, value, sums[v]);
    }
  }
  for (; i < width; i += kLanes) {
    const VF32 value = LoadRow(d, DataType::kFloat32, x + i, width - i);
    sums[0] = hn::MulAdd(value, value, sums[0]);
  }
  const VF32 sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  const double mean =
      static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum))) / static_cast<double>(width);
  const VF32 scale = hn::Set(d, static_cast<float>(1 / std::sqrt(mean + epsilon)));
  for (i = 0; i < width; i += kLanes) {
    const VF32 value = LoadRow(d, DataType::kFloat32, x + i, width - i);
    const VF32 factor = LoadRow(d, DataType::kFloat32, gamma + i, width - i);
    StoreRow(d, hn::Mul(hn::Mul(value, scale), factor), DataType::kFloat32, out + i, width - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet {
HWY_EXPORT(NormGroup);

namespace ops {

void RmsNorm(const float* x, std::span<const float> gamma, float epsilon, float* out,
             std::int64_t groups) {
  constexpr std::int64_t kTaskElements = 16384;
  const auto width = static_cast<std::int64_t>(gamma.size());
  const std::int64_t a_task = std::max<std::int64_t>(1, kTaskElements / width);
  HostPool().Run(static_cast<int>((groups + a_task - 1) / a_task), [&](int task, int) {
    const std::int64_t end = std::min(groups, (task + 1) * a_task);
    for (std::int64_t group = task * a_task; group < end; ++group) {
      HWY_DYNAMIC_DISPATCH(NormGroup)
      (x + group * width, gamma.data(), epsilon, out + group * width, gamma.size());
    }
  });
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
