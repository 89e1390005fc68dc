#include "gemm/quantize_check.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "gemm/extent.h"

namespace culet {
namespace {

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

}  // namespace

Status CheckQuantization(const Quantization& q, std::string_view group_name) {
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

}  // namespace culet
