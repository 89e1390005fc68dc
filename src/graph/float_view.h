// Rows of host memory of any floating type, as doubles and back. For the reference
// alone.
#pragma once

#include <cstdint>
#include <limits>

#include "base/float_types.h"
#include "culet/tensor.h"
#include "culet/types.h"

namespace culet {

/// Row `row` of a packed matrix of `cols` columns.
inline void LoadRow(DevicePtr data, DataType type, std::int64_t row, std::int64_t cols,
                    double* out) {
  LoadLine(FromDevicePtr<const void>(data), type, row * cols, 1, static_cast<int>(cols), out);
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
