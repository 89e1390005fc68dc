// Where an element of a matrix lies.
#pragma once

#include <cstdint>

#include "culet/problem.h"

namespace culet {

/// Elements from (0, 0) to (row, col).
constexpr std::int64_t IndexOf(const MatrixLayout& layout, std::int64_t row,
                               std::int64_t col) noexcept {
  return layout.order == Order::kRowMajor ? row * layout.ld + col : row + col * layout.ld;
}

}  // namespace culet
