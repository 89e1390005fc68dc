// Rotary embedding.
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet::ops {
namespace {

// Turns the pairs (a[i], b[i]), which lie `step` apart.
void Turn(float* a, float* b, std::int64_t step, const float* cosines, const float* sines,
          std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = a[i * step], y = b[i * step];
    a[i * step] = x * cosines[i] - y * sines[i];
    b[i * step] = x * sines[i] + y * cosines[i];
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
      float* const values = x + (std::int64_t{row} * heads + head) * head_dim;
      if (params.layout == RopeLayout::kNeox) {
        Turn(values, values + half, 1, cosines, sines, half);
      } else {
        Turn(values, values + 1, 2, cosines, sines, half);
      }
    }
  });
}

}  // namespace culet::ops
