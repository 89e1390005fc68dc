// RMS norm.
#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet::ops {

void RmsNorm(const float* x, std::span<const float> gamma, float epsilon, float* out,
             std::int64_t groups) {
  constexpr std::int64_t kTaskElements = 8192;
  const auto width = static_cast<std::int64_t>(gamma.size());
  const std::int64_t a_task = std::max<std::int64_t>(1, kTaskElements / width);
  HostPool().Run(static_cast<int>((groups + a_task - 1) / a_task), [&](int task, int) {
    const std::int64_t end = std::min(groups, (task + 1) * a_task);
    for (std::int64_t group = task * a_task; group < end; ++group) {
      const float* const in = x + group * width;
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i) sum += static_cast<double>(in[i]) * in[i];
      const auto scale =
          static_cast<float>(1 / std::sqrt(sum / static_cast<double>(width) + epsilon));
      float* const to = out + group * width;
      for (std::int64_t i = 0; i < width; ++i) {
        to[i] = in[i] * scale * gamma[static_cast<std::size_t>(i)];
      }
    }
  });
}

}  // namespace culet::ops
