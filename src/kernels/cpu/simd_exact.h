// Single elements of D in double precision: what the SIMD families store where their FP32
// arithmetic left its range.
#pragma once

#include <cstdint>

#include "culet/problem.h"

namespace culet {

/// Elements of one product, for one thread. What it finds out about a row of A serves the row's
/// other elements, what it finds out about a column of B the column's: operands full of NaN or
/// infinities cost little more than others. A and B must stay as they are meanwhile.
class ExactElements {
 public:
  explicit ExactElements(const GemmArgs& args) noexcept : args_(args) {}

  /// alpha * sum + beta * C + bias of element (row, col) of the product, as the reference has it
  /// before it rounds.
  double Of(std::int64_t row, std::int64_t col) noexcept;

  /// silu(gate) * up of element (row, col) of a gated D.
  double OfGated(std::int64_t row, std::int64_t col) noexcept;

 private:
  enum class Holds : std::uint8_t { kNumbers, kInfinities, kNaN };
  static constexpr int kPlaces = 256;   // infinities of a row that are kept
  static constexpr int kColumns = 512;  // columns that are kept, by their number modulo this

  double Sum(int row, int col) noexcept;
  void LookAtRow(int row) noexcept;
  Holds ColumnHolds(int col) noexcept;

  const GemmArgs& args_;
  int row_ = -1;                // the one looked at last
  Holds row_holds_ = {};        //
  int infinities_ = 0;          // of that row; one more than kPlaces if there are more
  bool columns_known_ = false;  // whether the arrays of columns hold anything
  int place_[kPlaces];          // along K
  double value_[kPlaces];
  int column_[kColumns];
  Holds column_holds_[kColumns];
};

}  // namespace culet
