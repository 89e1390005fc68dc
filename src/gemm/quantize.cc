#include "culet/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/e4m3_group.h"
#include "base/float_types.h"
#include "base/matrix_index.h"
#include "base/thread_pool.h"
#include "gemm/quantize_check.h"

namespace culet {
namespace {

constexpr int kTaskElements = 1 << 16;  // about 0.3 ms of work: far above the cost of a hand-out

// One group: the largest magnitude, the scale, the values. docs/numerics.md has the definition.
void QuantizeGroup(const Quantization& q, int group_row, int group_col) {
  const MatrixLayout& source = q.source_layout;
  const int row0 = group_row * q.group_rows, col0 = group_col * q.group_cols;
  const int rows = std::min(q.group_rows, source.rows - row0);
  const int cols = std::min(q.group_cols, source.cols - col0);
  const auto load = [&](int r, int c) {
    return static_cast<float>(
        LoadAsDouble(q.source, source.type, IndexOf(source, row0 + r, col0 + c)));
  };

  float amax = 0.0f;
  bool finite = true;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      const float magnitude = std::fabs(load(r, c));
      finite &= std::isfinite(magnitude);
      amax = std::max(amax, magnitude);
    }
  }
  const float scale = ScaleOfE4m3Group(amax, finite);
  q.scales[IndexOf(q.scales_layout, group_row, group_col)] = scale;

  auto* values = static_cast<std::uint8_t*>(q.values);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      values[IndexOf(q.values_layout, row0 + r, col0 + c)] = FloatToFloat8E4m3(load(r, c) / scale);
    }
  }
}

void QuantizeAll(const Quantization& q) {
  const std::int64_t group_rows = q.scales_layout.rows;
  const std::int64_t groups = group_rows * q.scales_layout.cols;
  const std::int64_t elements = std::int64_t{std::min(q.group_rows, q.source_layout.rows)} *
                                std::min(q.group_cols, q.source_layout.cols);
  const std::int64_t a_task = std::max<std::int64_t>(1, kTaskElements / elements);
  const std::int64_t tasks = (groups + a_task - 1) / a_task;
  // Groups that share lines of the source lie side by side in a task.
  const bool row_major = q.source_layout.order == Order::kRowMajor;
  HostPool().Run(static_cast<int>(tasks), [&](int task, int) {
    const std::int64_t end = std::min(groups, (task + 1) * a_task);
    for (std::int64_t group = task * a_task; group < end; ++group) {
      const std::int64_t row = row_major ? group / q.scales_layout.cols : group % group_rows;
      const std::int64_t col = row_major ? group % q.scales_layout.cols : group / group_rows;
      QuantizeGroup(q, static_cast<int>(row), static_cast<int>(col));
    }
  });
}

}  // namespace

Status QuantizeGroups(const void* source, const MatrixLayout& source_layout, void* values,
                      const MatrixLayout& values_layout, float* scales,
                      const MatrixLayout& scales_layout, int group) {
  const Quantization q{source, source_layout, values, values_layout,
                       scales, scales_layout, 1,      group};
  CULET_RETURN_IF_ERROR(CheckQuantization(q, "group"));
  QuantizeAll(q);
  return {};
}

Status QuantizeBlocks(const void* source, const MatrixLayout& source_layout, void* values,
                      const MatrixLayout& values_layout, float* scales,
                      const MatrixLayout& scales_layout, int block) {
  const Quantization q{source, source_layout, values, values_layout,
                       scales, scales_layout, block,  block};
  CULET_RETURN_IF_ERROR(CheckQuantization(q, "block"));
  QuantizeAll(q);
  return {};
}

}  // namespace culet
