#include "graph/verify_weight.h"

#include <cmath>

#include <fmt/format.h>

#include "base/scales.h"

namespace culet {
namespace {

// A weight of codes, whose input stays as it is. Zero points are those of uint4.
std::string WhyNotCodes(const char* what, const Weight& weight, const OpParams& params) {
  const char* const type = ToString(weight.type);
  const bool rows = weight.quant == QuantDesc{QuantType::kRow};
  if (!rows && (weight.quant.type != QuantType::kK || weight.quant.group_size < 1)) {
    return fmt::format("{} is {} and needs scales, one a group (kK) or a row (kRow)", what, type);
  }
  if (IsSubByte(weight.type) && weight.cols % 2 != 0) {
    return fmt::format(
        "{} is {} of {} columns; rows begin at whole bytes, so the number must be "
        "even",
        what, type, weight.cols);
  }
  const auto lies = [](DevicePtr at, DataType of) { return at != 0 && at % SizeOf(of) == 0; };
  const bool powers =
      weight.type == DataType::kFloat4_e2m1 && weight.scales_type == DataType::kFloat8_ue8m0;
  if ((!IsFloat(weight.scales_type) && !powers) || !lies(weight.scales_ptr, weight.scales_type)) {
    return fmt::format("{} is {}; its scales must be float32, float16 or bfloat16, aligned", what,
                       type);
  }
  // int8 may have some.
  const bool zeros = weight.type == DataType::kUint4 ||
                     (weight.type == DataType::kInt8 && weight.zeros_type != DataType::kNull);
  if (zeros && (!IsFloat(weight.zeros_type) || !lies(weight.zeros_ptr, weight.zeros_type))) {
    return fmt::format("{} is {}; its zero points must be float32, float16 or bfloat16, aligned",
                       what, type);
  }
  if (!zeros && (weight.zeros_type != DataType::kNull || weight.zeros_ptr != 0)) {
    return fmt::format("{} is {} with zero points; they go with uint4 and int8", what, type);
  }
  if (weight.order_ptr % sizeof(std::int32_t) != 0) {
    return fmt::format("{} has an order that is not aligned to 4 bytes", what);
  }
  if (params.quant_a == QuantDesc{}) return {};
  return fmt::format("{} is {}, so its input is not quantised; leave quant_a empty", what, type);
}

}  // namespace

std::string WhyNotPlaced(const char* what, const Weight& weight) {
  if (weight.data_ptr == 0) return fmt::format("{} has no data_ptr", what);
  if (weight.data_ptr % SizeOf(weight.type) != 0) {
    return fmt::format("{} lies at {:#x}, not a multiple of {} bytes", what, weight.data_ptr,
                       SizeOf(weight.type));
  }
  return {};
}

std::string WhyNotWeight(const char* what, const Weight& weight, std::int64_t n, std::int64_t k,
                         const OpParams& params) {
  if (!weight.present()) return fmt::format("{} is missing", what);
  if (weight.rows != n || weight.cols != k) {
    return fmt::format("{} is [{}, {}]; these shapes need [{}, {}]", what, weight.rows, weight.cols,
                       n, k);
  }
  if (std::string reason = WhyNotPlaced(what, weight); !reason.empty()) return reason;
  if (IsFloat(weight.type)) {
    if (weight.quant == QuantDesc{} && params.quant_a == QuantDesc{}) return {};
    return fmt::format("{} is {} but has scales, or quant_a is set; both go with float8_e4m3", what,
                       ToString(weight.type));
  }
  if (IsCode(weight.type)) return WhyNotCodes(what, weight, params);
  if (weight.type != DataType::kFloat8_e4m3) {
    return fmt::format(
        "{} is {}; it must be float32, float16, bfloat16, float8_e4m3, uint4, "
        "float4_e2m1 or int8",
        what, ToString(weight.type));
  }
  const bool rows = weight.quant == QuantDesc{QuantType::kRow};
  const bool blocks = weight.quant.type == QuantType::kB && weight.quant.group_size >= 1;
  if ((!rows && !blocks) || weight.scales_type != DataType::kFloat32 || weight.scales_ptr == 0 ||
      weight.scales_ptr % sizeof(float) != 0) {
    return fmt::format(
        "{} is float8_e4m3 and needs float32 scales, one a block (kB) or a row (kRow)", what);
  }
  const QuantDesc& inputs = params.quant_a;
  if (inputs == QuantDesc{}) return WhyNotScale(params);  // not quantised
  if (rows && inputs != QuantDesc{QuantType::kRow}) {
    return fmt::format(
        "{} is float8_e4m3 with a scale a row, so quant_a must be kRow, too, or empty", what);
  }
  if (blocks && (inputs.type != QuantType::kK || inputs.group_size < 1)) {
    return fmt::format(
        "{} is float8_e4m3 in blocks, so quant_a must be kK, with a group size, or empty", what);
  }
  return WhyNotScale(params);
}

std::string WhyNotScale(const OpParams& params) {
  const float scale = params.scalar;
  if (scale == 0) return {};
  if (params.quant_a.type != QuantType::kRow) {
    return fmt::format("scalar is {}, but quant_a is not kRow; a given scale is that of rows",
                       scale);
  }
  if (scale > 0 && std::isfinite(scale)) return {};
  return fmt::format("scalar is {}; the scale of all inputs must be a positive number", scale);
}

}  // namespace culet
