// Rows of float32, float16 and bfloat16 as floats and back.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/float_types.h"
#include "culet/types.h"

namespace culet::ops {

/// `count` elements from `first` on. Other types give nothing: callers have refused them.
inline void LoadFloats(const void* data, DataType type, std::int64_t first, std::int64_t count,
                       float* out) noexcept {
  const auto* const narrow = static_cast<const std::uint16_t*>(data) + first;
  if (type == DataType::kFloat32) {
    std::memcpy(out, static_cast<const float*>(data) + first,
                static_cast<std::size_t>(count) * sizeof(float));
  } else if (type == DataType::kBfloat16) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = Bfloat16ToFloat(narrow[i]);
  } else if (type == DataType::kFloat16) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = Float16ToFloat(narrow[i]);
  }
}

inline void StoreFloats(const float* from, void* data, DataType type, std::int64_t first,
                        std::int64_t count) noexcept {
  auto* const narrow = static_cast<std::uint16_t*>(data) + first;
  if (type == DataType::kFloat32) {
    std::memcpy(static_cast<float*>(data) + first, from,
                static_cast<std::size_t>(count) * sizeof(float));
  } else if (type == DataType::kBfloat16) {
    for (std::int64_t i = 0; i < count; ++i) narrow[i] = FloatToBfloat16(from[i]);
  } else if (type == DataType::kFloat16) {
    for (std::int64_t i = 0; i < count; ++i) narrow[i] = FloatToFloat16(from[i]);
  }
}

}  // namespace culet::ops
