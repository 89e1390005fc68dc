// QuantizeGroupsCuda: the GPU's quantiser behind the checks of the host's.
#include <fmt/format.h>

#include "base/accelerator.h"
#include "culet/quantize.h"
#include "gemm/quantize_check.h"

namespace culet {
namespace {

constexpr int kGroup = 128;

Status CheckForKernel(const Quantization& q) {
  CULET_RETURN_IF_ERROR(CheckQuantization(q, "group"));
  if (q.source_layout.type != DataType::kBfloat16) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("source_layout.type is {}; on a GPU only bfloat16 is quantised",
                              ToString(q.source_layout.type)));
  }
  if (q.source_layout.order != Order::kRowMajor || q.values_layout.order != Order::kRowMajor) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("source_layout is {}-major and values_layout {}-major; on a GPU both "
                              "must be row-major",
                              ToString(q.source_layout.order), ToString(q.values_layout.order)));
  }
  return {};
}

}  // namespace

Status QuantizeGroupsCuda(const void* source, const MatrixLayout& source_layout, void* values,
                          const MatrixLayout& values_layout, float* scales,
                          const MatrixLayout& scales_layout, cudaStream_t stream, bool pdl) {
  CULET_RETURN_IF_ERROR(CheckForKernel(
      {source, source_layout, values, values_layout, scales, scales_layout, 1, kGroup}));
  QuantizeE4m3Args args;
  args.source = source;
  args.source_ld = source_layout.ld;
  args.values = values;
  args.values_ld = values_layout.ld;
  args.scales = scales;
  const bool by_rows = scales_layout.order == Order::kRowMajor;
  args.scale_row = by_rows ? scales_layout.ld : 1;
  args.scale_group = by_rows ? 1 : scales_layout.ld;
  args.rows = source_layout.rows;
  args.k = source_layout.cols;
  return QuantizeRowsE4m3(args, pdl, stream);
}

}  // namespace culet
