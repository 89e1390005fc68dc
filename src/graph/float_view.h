// Rows of host memory of any floating type, as doubles and back. For the reference, and where
// speed does not count.
#pragma once

#include <cstdint>
#include <limits>

#include "base/float_types.h"
#include "base/scales.h"
#include "culet/tensor.h"
#include "culet/types.h"

namespace culet {

/// Row `row` of a packed matrix of `cols` columns.
inline void LoadRow(DevicePtr data, DataType type, std::int64_t row, std::int64_t cols,
                    double* out) {
  LoadLine(FromDevicePtr<const void>(data), type, row * cols, 1, static_cast<int>(cols), out);
}

/// Row `row` of a weight: quantised ones less the zero points, times the scales.
inline void LoadWeightRow(const Weight& weight, std::int64_t row, double* out) {
  LoadRow(weight.data_ptr, weight.type, row, weight.cols, out);
  if (weight.quant.type == QuantType::kNone) return;
  const Shape group = WeightGroupOf(weight);
  const std::int64_t first = row / group.rows * ScalesAcross(weight);
  const auto* scales = FromDevicePtr<const void>(weight.scales_ptr);
  const auto* zeros = FromDevicePtr<const void>(weight.zeros_ptr);
  for (std::int64_t l = 0; l < weight.cols; ++l) {
    const std::int64_t at = first + l / group.cols;
    if (zeros != nullptr) out[l] -= LoadAsDouble(zeros, weight.zeros_type, at);
    out[l] *= LoadAsDouble(scales, weight.scales_type, at);
  }
}

inline void StoreRow(DevicePtr data, DataType type, std::int64_t row, std::int64_t cols,
                     const double* values) {
  for (std::int64_t c = 0; c < cols; ++c) {
    StoreFromDouble(FromDevicePtr<void>(data), type, row * cols + c, values[c]);
  }
}

inline void StoreNaN(DevicePtr data, DataType type, std::int64_t row, std::int64_t cols) {
  for (std::int64_t c = 0; c < cols; ++c) {
    StoreFromDouble(FromDevicePtr<void>(data), type, row * cols + c,
                    std::numeric_limits<double>::quiet_NaN());
  }
}

inline std::int32_t IndexAt(DevicePtr data, std::int64_t i) {
  return FromDevicePtr<const std::int32_t>(data)[i];
}

}  // namespace culet
