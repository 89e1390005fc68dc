#include "culet/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/e4m3_group.h"
#include "base/float_types.h"
#include "base/matrix_index.h"
#include "base/thread_pool.h"
#include "gemm/quantize_check.h"
#include "kernels/cpu/simd_quantize.h"

namespace culet {
namespace {

constexpr int kTaskElements = 1 << 16;  // some 50 us of work: far above the cost of a hand-out

constexpr std::int64_t kPart = 256;  // elements of a line that are gathered or scattered at a time

// Elements from one to the next along a line: a row's, or a column's.
std::int64_t StrideOf(const MatrixLayout& layout, bool by_rows) {
  return (layout.order == Order::kRowMajor) == by_rows ? 1 : layout.ld;
}

// One group: the largest magnitude, the scale, the values. docs/numerics.md has the definition.
void QuantizeGroup(const Quantization& q, int group_row, int group_col) {
  const MatrixLayout& source = q.source_layout;
  const int row0 = group_row * q.group_rows, col0 = group_col * q.group_cols;
  const int rows = std::min(q.group_rows, source.rows - row0);
  const int cols = std::min(q.group_cols, source.cols - col0);
  // The group as lines of elements that lie side by side, where it has such.
  const bool by_rows = source.order == Order::kRowMajor || rows == 1;
  const int lines = by_rows ? rows : cols;
  const std::int64_t length = by_rows ? cols : rows;
  const std::int64_t from_stride = StrideOf(source, by_rows);
  const std::int64_t to_stride = StrideOf(q.values_layout, by_rows);
  const auto at = [&](const MatrixLayout& layout, int line, std::int64_t i) {
    return by_rows ? IndexOf(layout, row0 + line, col0 + i)
                   : IndexOf(layout, row0 + i, col0 + line);
  };
  // Calls part(line, first, elements, type, count) for all of the group.
  const auto for_parts = [&](auto part) {
    for (int line = 0; line < lines; ++line) {
      if (from_stride == 1) {
        part(line, 0,
             static_cast<const std::byte*>(q.source) +
                 at(source, line, 0) * static_cast<std::int64_t>(SizeOf(source.type)),
             source.type, length);
        continue;
      }
      for (std::int64_t i = 0; i < length; i += kPart) {
        const std::int64_t count = std::min(kPart, length - i);
        double loaded[kPart];
        float gathered[kPart];
        LoadLine(q.source, source.type, at(source, line, i), from_stride, static_cast<int>(count),
                 loaded);
        std::transform(loaded, loaded + count, gathered,
                       [](double value) { return static_cast<float>(value); });
        part(line, i, static_cast<const void*>(gathered), DataType::kFloat32, count);
      }
    }
  };

  float amax = 0.0f;
  bool finite = true;
  for_parts([&](int, std::int64_t, const void* x, DataType type, std::int64_t count) {
    const float largest = LargestMagnitude(x, type, static_cast<std::size_t>(count));
    finite &= !std::isnan(largest);
    amax = std::max(amax, largest);
  });
  const float scale = ScaleOfE4m3Group(amax, finite);
  q.scales[IndexOf(q.scales_layout, group_row, group_col)] = scale;

  auto* const values = static_cast<std::uint8_t*>(q.values);
  for_parts([&](int line, std::int64_t first, const void* x, DataType type, std::int64_t count) {
    if (to_stride == 1) {
      EncodeE4m3(x, type, scale, static_cast<std::size_t>(count),
                 values + at(q.values_layout, line, first));
      return;
    }
    const std::int64_t size = static_cast<std::int64_t>(SizeOf(type));
    for (std::int64_t i = 0; i < count; i += kPart) {
      const std::int64_t some = std::min(kPart, count - i);
      std::uint8_t codes[kPart];
      EncodeE4m3(static_cast<const std::byte*>(x) + i * size, type, scale,
                 static_cast<std::size_t>(some), codes);
      for (std::int64_t j = 0; j < some; ++j) {
        values[at(q.values_layout, line, first + i + j)] = codes[j];
      }
    }
  });
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
