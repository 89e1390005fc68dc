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

/// Elements from the first matrix to matrix `index` of a batch; 0 for one that all share.
constexpr std::int64_t BatchOffset(const MatrixLayout& layout, std::int64_t index) noexcept {
  return layout.num > 1 ? index * layout.batch_stride : 0;
}

}  // namespace culet
