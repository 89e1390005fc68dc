#include "culet/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/float_types.h"
#include "base/matrix_index.h"
#include "base/thread_pool.h"
#include "gemm/extent.h"

namespace culet {
namespace {

constexpr float kLargestE4m3 = 448.0f;
constexpr int kTaskElements = 1 << 16;  // about 0.3 ms of work: far above the cost of a hand-out

template <class... Args>
Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

Status CheckOperand(std::string_view name, const void* data, const MatrixLayout& layout, int rows,
                    int cols) {
  if (data == nullptr) return Invalid("{} is null; give a matrix {} x {}", name, rows, cols);
  const std::size_t size = SizeOf(layout.type);
  if (reinterpret_cast<std::uintptr_t>(data) % size != 0) {
    return Invalid(
        "{} is {}, not a multiple of {} bytes; {} elements must be aligned to their size", name,
        data, size, ToString(layout.type));
  }
  if (layout.rows != rows || layout.cols != cols) {
    return Invalid("{}_layout is {} x {}; this source and group size make it {} x {}", name,
                   layout.rows, layout.cols, rows, cols);
  }
  if (layout.ld < InnerOf(layout)) {
    return Invalid("{}_layout.ld is {}, but a {}-major {} x {} matrix needs at least {} elements",
                   name, layout.ld, ToString(layout.order), rows, cols, InnerOf(layout));
  }
  if (ByteExtent(layout) < 0) {
    return Status(StatusCode::kOutOfRange,
                  fmt::format("{}_layout spans more than 63 bits of bytes (ld {}); lower ld", name,
                              layout.ld));
  }
  if (layout.pack != 0 || layout.num != 1 || layout.offsets != nullptr || layout.idxs != nullptr) {
    return Invalid("{}_layout has pack {} and num {}; give one plain matrix", name, layout.pack,
                   layout.num);
  }
  return {};
}

struct Quantization {
  const void* source;
  const MatrixLayout& source_layout;
  void* values;
  const MatrixLayout& values_layout;
  float* scales;
  const MatrixLayout& scales_layout;
  int group_rows;
  int group_cols;
};

Status Check(const Quantization& q, std::string_view group_name) {
  const MatrixLayout& source = q.source_layout;
  if (q.group_cols < 1) return Invalid("{} is {}; it must be >= 1", group_name, q.group_cols);
  if (source.type != DataType::kFloat32 && source.type != DataType::kFloat16 &&
      source.type != DataType::kBfloat16) {
    return Invalid("source_layout.type is {}; use float32, float16 or bfloat16",
                   ToString(source.type));
  }
  if (q.values_layout.type != DataType::kFloat8_e4m3) {
    return Invalid("values_layout.type is {}; this quantiser writes float8_e4m3",
                   ToString(q.values_layout.type));
  }
  if (q.scales_layout.type != DataType::kFloat32) {
    return Invalid("scales_layout.type is {}; this quantiser writes float32 scales",
                   ToString(q.scales_layout.type));
  }
  if (source.rows < 1 || source.cols < 1) {
    return Invalid("source_layout is {} x {}; both must be >= 1", source.rows, source.cols);
  }
  CULET_RETURN_IF_ERROR(CheckOperand("source", q.source, source, source.rows, source.cols));
  CULET_RETURN_IF_ERROR(
      CheckOperand("values", q.values, q.values_layout, source.rows, source.cols));
  const int scale_rows = (source.rows - 1) / q.group_rows + 1;
  const int scale_cols = (source.cols - 1) / q.group_cols + 1;
  CULET_RETURN_IF_ERROR(CheckOperand("scales", q.scales, q.scales_layout, scale_rows, scale_cols));

  const Footprint in = FootprintOf(source), out = FootprintOf(q.values_layout);
  const Footprint scales = FootprintOf(q.scales_layout);
  if (Overlap(q.source, in, q.values, out)) {
    return Invalid("values ({}) overlaps source ({}); give it memory of its own", q.values,
                   q.source);
  }
  if (Overlap(q.source, in, q.scales, scales) || Overlap(q.values, out, q.scales, scales)) {
    return Invalid("scales ({}) overlaps source ({}) or values ({}); give it memory of its own",
                   static_cast<const void*>(q.scales), q.source, q.values);
  }
  return {};
}

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
  float scale = amax / kLargestE4m3;
  // Below about 448 * 2^-150 the division gives zero, which would divide by zero in turn. Such a
  // group takes the smallest scale there is.
  if (scale == 0.0f) scale = amax == 0.0f ? 1.0f : std::numeric_limits<float>::denorm_min();
  if (!finite) scale = std::numeric_limits<float>::quiet_NaN();
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
  CULET_RETURN_IF_ERROR(Check(q, "group"));
  QuantizeAll(q);
  return {};
}

Status QuantizeBlocks(const void* source, const MatrixLayout& source_layout, void* values,
                      const MatrixLayout& values_layout, float* scales,
                      const MatrixLayout& scales_layout, int block) {
  const Quantization q{source, source_layout, values, values_layout,
                       scales, scales_layout, block,  block};
  CULET_RETURN_IF_ERROR(Check(q, "block"));
  QuantizeAll(q);
  return {};
}

}  // namespace culet
