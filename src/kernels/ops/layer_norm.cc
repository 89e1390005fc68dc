// Layer norm, and rows scaled by their position.
#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet::ops {
namespace {

// `body(row)` for all rows of `width` elements.
template <class F>
void ForRows(std::int64_t rows, std::int64_t width, F body) {
  constexpr std::int64_t kTaskElements = 16384;
  const std::int64_t a_task = std::max<std::int64_t>(1, kTaskElements / width);
  HostPool().Run(static_cast<int>((rows + a_task - 1) / a_task), [&](int task, int) {
    const std::int64_t end = std::min(rows, (task + 1) * a_task);
    for (std::int64_t row = task * a_task; row < end; ++row) body(row);
  });
}

}  // namespace

void LayerNorm(const float* x, std::span<const float> gamma, float epsilon, float* out,
               std::int64_t rows) {
  const auto width = static_cast<std::int64_t>(gamma.size());
  ForRows(rows, width, [&](std::int64_t row) {
    const float* const from = x + row * width;
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += double{from[i]};
    const double mean = sum / static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i) squares += (from[i] - mean) * (from[i] - mean);
    const double by = 1 / std::sqrt(squares / static_cast<double>(width) + double{epsilon});
    for (std::int64_t i = 0; i < width; ++i) {
      out[row * width + i] =
          static_cast<float>((from[i] - mean) * by) * gamma[static_cast<std::size_t>(i)];
    }
  });
}

void PositionScale(const float* x, const std::int32_t* positions, double ahead, float by,
                   double original, float* out, std::int64_t rows, std::int64_t cols) {
  ForRows(rows, cols, [&](std::int64_t row) {
    const double turns = std::floor((positions[row] + ahead) / original);
    const auto factor = static_cast<float>(1 + double{by} * std::log1p(turns));
    for (std::int64_t i = row * cols; i < (row + 1) * cols; ++i) out[i] = x[i] * factor;
  });
}

}  // namespace culet::ops
