// Types of numbers that no scale belongs to.
#pragma once

#include "culet/types.h"

namespace culet {

constexpr bool IsPlain(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

}  // namespace culet
