// Rows quantised to E4M3.
#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/cpu/simd_quantize.h"
#include "kernels/ops/ops.h"

namespace culet::ops {

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
      scales[at] = QuantizeGroupOf(x + from, count, values + from);
    }
  });
}

}  // namespace culet::ops
