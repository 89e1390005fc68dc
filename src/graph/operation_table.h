// A dispatch's table of operations.
#pragma once

#include <array>
#include <cstddef>

#include "culet/tensor.h"

namespace culet {

/// A row for each operation that a dispatch has.
template <class Row>
class OperationTable {
 public:
  struct Entry {
    TensorOp op = TensorOp::kNone;
    Row row;
  };

  template <std::size_t kCount>
  constexpr explicit OperationTable(const Entry (&entries)[kCount]) {
    for (const Entry& entry : entries) {
      rows_[static_cast<std::size_t>(entry.op)] = entry.row;
      has_[static_cast<std::size_t>(entry.op)] = true;
    }
  }

  /// Null for an operation that the dispatch lacks.
  constexpr const Row* Find(TensorOp op) const noexcept {
    const auto i = static_cast<std::size_t>(op);
    return i < has_.size() && has_[i] ? &rows_[i] : nullptr;
  }

 private:
  static constexpr std::size_t kMost = static_cast<std::size_t>(TensorOp::kAllArgMax) + 1;
  std::array<Row, kMost> rows_{};
  std::array<bool, kMost> has_{};
};

}  // namespace culet
