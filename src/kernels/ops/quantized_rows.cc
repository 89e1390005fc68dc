// Operations whose rows are quantised while they are in the cache, a group at a time.
#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/cpu/simd_quantize.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/row_parts.h"

namespace culet::ops {
namespace {

// `row(i)` for all rows of `width` elements.
template <class F>
void ForRows(std::int64_t rows, std::int64_t width, F row) {
  constexpr std::int64_t kTaskElements = 16384;
  const std::int64_t a_task = std::max<std::int64_t>(1, kTaskElements / width);
  HostPool().Run(static_cast<int>((rows + a_task - 1) / a_task), [&](int task, int) {
    const std::int64_t end = std::min(rows, (task + 1) * a_task);
    for (std::int64_t i = task * a_task; i < end; ++i) row(i);
  });
}

// Quantises row `i`, of which `elements(first, count, out)` computes a part.
template <class F>
void QuantizeRow(std::int64_t i, std::int64_t width, const QuantizedTo& to, F elements) {
  float values[kMostFusedGroup];
  const std::int64_t groups = (width + to.group - 1) / to.group;
  for (std::int64_t at = 0; at < groups; ++at) {
    const std::int64_t first = at * to.group;
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(to.group, width - first));
    elements(first, count, values);
    to.scales[i * groups + at] = QuantizeGroupOf(values, count, to.codes + i * width + first);
  }
}

}  // namespace

void SwiGluQuantize(const float* gate, const float* up, std::int64_t rows, std::int64_t cols,
                    const QuantizedTo& to) {
  ForRows(rows, cols, [&](std::int64_t i) {
    QuantizeRow(i, cols, to, [&](std::int64_t first, std::size_t count, float* out) {
      SwiGluElements(gate + i * cols + first, up + i * cols + first, out, count);
    });
  });
}

void RmsNormQuantize(const float* x, const float* y, std::span<const float> gamma, float epsilon,
                     float* sum, std::int64_t rows, const QuantizedTo& to) {
  const auto width = static_cast<std::int64_t>(gamma.size());
  ForRows(rows, width, [&](std::int64_t i) {
    const std::int64_t at = i * width;
    const bool add = y != nullptr;
    const float by = RowNormScale(x + at, add ? y + at : nullptr, add ? sum + at : nullptr, epsilon,
                                  gamma.size());
    const float* const row = add ? sum + at : x + at;
    QuantizeRow(i, width, to, [&](std::int64_t first, std::size_t count, float* out) {
      ScaleElements(row + first, gamma.data() + first, by, out, count);
    });
  });
}

}  // namespace culet::ops
