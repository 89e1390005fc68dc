// How many scales weights and quantised inputs of a graph have.
#pragma once

#include <cstdint>

#include "culet/tensor.h"

namespace culet {

/// Whether weights of this type are codes with scales, against inputs that are not quantised.
constexpr bool IsCode(DataType type) noexcept {
  return type == DataType::kUint4 || type == DataType::kFloat4_e2m1 || type == DataType::kInt8;
}

/// Elements of a row of `cols` that share a scale; 1 for what Verify refuses.
constexpr std::int64_t InputGroupOf(const QuantDesc& quant, std::int64_t cols) noexcept {
  if (quant.type == QuantType::kRow) return cols;
  return quant.group_size > 0 ? quant.group_size : 1;
}

/// Scales of a row of `cols` elements.
constexpr std::int64_t InputScalesOf(const QuantDesc& quant, std::int64_t cols) noexcept {
  const std::int64_t group = InputGroupOf(quant, cols);
  return group > 0 ? (cols + group - 1) / group : 0;
}

/// What shares a scale of the weight: rows, and columns.
constexpr Shape WeightGroupOf(const Weight& weight) noexcept {
  const std::int64_t group = weight.quant.group_size > 0 ? weight.quant.group_size : 1;
  switch (weight.quant.type) {
    case QuantType::kK:
      return {1, group};
    case QuantType::kB:
      return {group, group};
    case QuantType::kRow:
      return {1, weight.cols};
    case QuantType::kTensor:
    case QuantType::kNone:
      break;
  }
  return {weight.rows, weight.cols};
}

/// Scales side by side, of one row or block of rows.
constexpr std::int64_t ScalesAcross(const Weight& weight) noexcept {
  const Shape group = WeightGroupOf(weight);
  return (weight.cols + group.cols - 1) / group.cols;
}

/// All scales of the weight.
constexpr std::int64_t ScalesOf(const Weight& weight) noexcept {
  if (weight.quant.type == QuantType::kNone || weight.rows < 1 || weight.cols < 1) return 0;
  const Shape group = WeightGroupOf(weight);
  return (weight.rows + group.rows - 1) / group.rows * ScalesAcross(weight);
}

}  // namespace culet
