// Rows quantised to E4M3.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float_types.h"
#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet::ops {

void QuantizeRows(const float* x, std::int64_t rows, std::int64_t cols, int group,
                  std::uint8_t* values, float* scales) {
  constexpr float kLargest = 448.0f;
  const std::int64_t groups = (cols + group - 1) / group;
  constexpr std::int64_t kTaskGroups = 32;
  const std::int64_t all = rows * groups;
  HostPool().Run(static_cast<int>((all + kTaskGroups - 1) / kTaskGroups), [&](int task, int) {
    const std::int64_t end = std::min(all, (task + 1) * kTaskGroups);
    for (std::int64_t at = task * kTaskGroups; at < end; ++at) {
      const std::int64_t row = at / groups, first = at % groups * group;
      const std::int64_t count = std::min<std::int64_t>(group, cols - first);
      const float* const in = x + row * cols + first;
      float amax = 0;
      bool finite = true;
      for (std::int64_t i = 0; i < count; ++i) {
        const float magnitude = std::fabs(in[i]);
        finite &= magnitude <= std::numeric_limits<float>::max();
        amax = std::max(amax, magnitude);
      }
      float scale = amax / kLargest;
      if (scale == 0) scale = amax == 0 ? 1.0f : std::numeric_limits<float>::denorm_min();
      if (!finite) scale = std::numeric_limits<float>::quiet_NaN();
      scales[at] = scale;
      std::uint8_t* const to = values + row * cols + first;
      for (std::int64_t i = 0; i < count; ++i) to[i] = FloatToFloat8E4m3(in[i] / scale);
    }
  });
}

}  // namespace culet::ops
