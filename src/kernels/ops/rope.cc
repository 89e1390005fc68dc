// Rotary embedding.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/rope.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// Rotates the pairs (a[i], b[i]).
void TurnHalves(float* HWY_RESTRICT a, float* HWY_RESTRICT b, const float* HWY_RESTRICT cosines,
                const float* HWY_RESTRICT sines, std::size_t count) {
  const F32 d;
  constexpr DataType kType = DataType::kFloat32;
  for (std::size_t i = 0; i < count; i += kLanes) {
    const std::size_t left = count - i;
    const VF32 x = LoadRow(d, kType, a + i, left), y = LoadRow(d, kType, b + i, left);
    const VF32 cosine = LoadRow(d, kType, cosines + i, left);
    const VF32 sine = LoadRow(d, kType, sines + i, left);
    StoreRow(d, hn::Sub(hn::Mul(x, cosine), hn::Mul(y, sine)), kType, a + i, left);
    StoreRow(d, hn::Add(hn::Mul(x, sine), hn::Mul(y, cosine)), kType, b + i, left);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet {
HWY_EXPORT(TurnHalves);

namespace ops {
namespace {

// Rotates the pairs (x[2 i], x[2 i + 1]).
void TurnNeighbours(float* x, const float* cosines, const float* sines, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

}  // namespace

std::size_t RopeWorkspace(const RopeParams& params, std::int64_t rows) noexcept {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(params.dims);
}

void Rope(const RopeParams& params, std::span<const double> frequencies,
          const std::int32_t* positions, float* x, std::int64_t rows, int heads, int head_dim,
          float* workspace) {
  const auto half = static_cast<std::int64_t>(frequencies.size());
  HostPool().Run(static_cast<int>(rows), [&](int row, int) {
    float* const cosines = workspace + row * 2 * half;
    float* const sines = cosines + half;
    for (std::int64_t i = 0; i < half; ++i) {
      // A float would lose the angle's fraction at long positions.
      const double angle = positions[row] * frequencies[static_cast<std::size_t>(i)];
      cosines[i] = static_cast<float>(std::cos(angle) * params.attention_factor);
      sines[i] = static_cast<float>(std::sin(angle) * params.attention_factor);
    }
    for (int head = 0; head < heads; ++head) {
      float* const values = x + (std::int64_t{row} * heads + head) * head_dim + params.first;
      if (params.layout == RopeLayout::kNeox) {
        HWY_DYNAMIC_DISPATCH(TurnHalves)
        (values, values + half, cosines, sines, frequencies.size());
      } else {
        TurnNeighbours(values, cosines, sines, half);
      }
    }
  });
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
