// RMS norm, alone and with the residual sum before it.
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

namespace {

// Vector i of the group, of which `count` elements are left.
struct Plain {
  const float* x;
  HWY_INLINE VF32 operator()(F32 d, std::size_t i, std::size_t count) const {
    return count >= kLanes ? hn::LoadU(d, x + i) : LoadRow(d, DataType::kFloat32, x + i, count);
  }
};

// For x + y, which is stored in `sum`.
struct Sum {
  const float *x, *y;
  float* sum;
  HWY_INLINE VF32 operator()(F32 d, std::size_t i, std::size_t count) const {
    if (count >= kLanes) {
      const VF32 value = hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i));
      hn::StoreU(value, d, sum + i);
      return value;
    }
    const VF32 value = hn::Add(LoadRow(d, DataType::kFloat32, x + i, count),
                               LoadRow(d, DataType::kFloat32, y + i, count));
    StoreRow(d, value, DataType::kFloat32, sum + i, count);
    return value;
  }
};

// What the group of `load` is divided by.
template <class Load>
HWY_INLINE float ScaleOf(const Load& load, float epsilon, std::size_t width) {
  const F32 d;
  VF32 sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  std::size_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
    for (std::size_t v = 0; v < 4; ++v) {
      const VF32 value = load(d, i + v * kLanes, kLanes);
      sums[v] = hn::MulAdd(value, value, sums[v]);
    }
  }
  for (; i < width; i += kLanes) {
    const VF32 value = load(d, i, width - i);
    sums[0] = hn::MulAdd(value, value, sums[0]);
  }
  const VF32 sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  const double mean =
      static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum))) / static_cast<double>(width);
  return static_cast<float>(1 / std::sqrt(mean + epsilon));
}

HWY_INLINE void ScaleGroup(const float* x, const float* gamma, float by, float* out,
                           std::size_t width) {
  const F32 d;
  const VF32 scale = hn::Set(d, by);
  for (std::size_t i = 0; i < width; i += kLanes) {
    const VF32 value = LoadRow(d, DataType::kFloat32, x + i, width - i);
    const VF32 factor = LoadRow(d, DataType::kFloat32, gamma + i, width - i);
    StoreRow(d, hn::Mul(hn::Mul(value, scale), factor), DataType::kFloat32, out + i, width - i);
  }
}

}  // namespace

float NormScale(const float* x, const float* y, float* sum, float epsilon, std::size_t width) {
  return y == nullptr ? ScaleOf(Plain{x}, epsilon, width) : ScaleOf(Sum{x, y, sum}, epsilon, width);
}

void ScaleRange(const float* x, const float* gamma, float by, float* out, std::size_t n) {
  ScaleGroup(x, gamma, by, out, n);
}

void NormGroup(const float* x, const float* gamma, float epsilon, float* out, std::size_t width) {
  ScaleGroup(x, gamma, ScaleOf(Plain{x}, epsilon, width), out, width);
}

void AddNormGroup(const float* x, const float* y, const float* gamma, float epsilon, float* sum,
                  float* out, std::size_t width) {
  ScaleGroup(sum, gamma, ScaleOf(Sum{x, y, sum}, epsilon, width), out, width);
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/row_parts.h"

namespace culet {
HWY_EXPORT(NormGroup);
HWY_EXPORT(AddNormGroup);
HWY_EXPORT(NormScale);
HWY_EXPORT(ScaleRange);

namespace ops {
namespace {

// `body(group)` for all groups of `width` elements.
template <class F>
void ForGroups(std::int64_t groups, std::size_t width, F body) {
  constexpr std::int64_t kTaskElements = 16384;
  const std::int64_t a_task =
      std::max<std::int64_t>(1, kTaskElements / static_cast<std::int64_t>(width));
  HostPool().Run(static_cast<int>((groups + a_task - 1) / a_task), [&](int task, int) {
    const std::int64_t end = std::min(groups, (task + 1) * a_task);
    for (std::int64_t group = task * a_task; group < end; ++group) body(group);
  });
}

}  // namespace

float RowNormScale(const float* x, const float* y, float* sum, float epsilon, std::size_t width) {
  return HWY_DYNAMIC_DISPATCH(NormScale)(x, y, sum, epsilon, width);
}

void ScaleElements(const float* x, const float* gamma, float by, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(ScaleRange)(x, gamma, by, out, n);
}

void RmsNorm(const float* x, std::span<const float> gamma, float epsilon, float* out,
             std::int64_t groups, std::int64_t stride) {
  const auto width = static_cast<std::int64_t>(gamma.size());
  stride = std::max(stride, width);
  ForGroups(groups, static_cast<std::size_t>(stride), [&](std::int64_t group) {
    const float* const from = x + group * stride;
    float* const to = out + group * stride;
    HWY_DYNAMIC_DISPATCH(NormGroup)(from, gamma.data(), epsilon, to, gamma.size());
    std::copy(from + width, from + stride, to + width);
  });
}

void AddRmsNorm(const float* x, const float* y, std::span<const float> gamma, float epsilon,
                float* sum, float* out, std::int64_t groups) {
  const auto width = static_cast<std::int64_t>(gamma.size());
  ForGroups(groups, gamma.size(), [&](std::int64_t group) {
    const std::int64_t at = group * width;
    HWY_DYNAMIC_DISPATCH(AddNormGroup)
    (x + at, y + at, gamma.data(), epsilon, sum + at, out + at, gamma.size());
  });
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
