#include "kernels/cpu/simd_exact.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/lines.h"

namespace culet {
namespace {

constexpr int kStep = 128;
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// Calls look(k0, count, values) for all of a line; ends where it returns false.
template <class F>
void ForParts(const Lines& lines, int line, int k, F look) {
  double values[kStep];
  for (int k0 = 0; k0 < k; k0 += kStep) {
    const int count = std::min(kStep, k - k0);
    LoadScaledLine(lines, line, k0, count, values);
    if (!look(k0, count, values)) return;
  }
}

}  // namespace

void ExactElements::LookAtRow(int row) noexcept {
  if (row == row_) return;
  row_ = row;
  row_holds_ = Holds::kNumbers;
  infinities_ = 0;
  ForParts(LinesOfA(args_, 0), row, args_.Adesc.cols, [&](int k0, int count, const double* values) {
    for (int i = 0; i < count; ++i) {
      if (std::isfinite(values[i])) continue;
      row_holds_ = std::isnan(values[i]) ? Holds::kNaN : Holds::kInfinities;
      if (row_holds_ == Holds::kNaN) return false;
      if (infinities_ < kPlaces) {
        place_[infinities_] = k0 + i;
        value_[infinities_] = values[i];
      }
      infinities_ = std::min(infinities_ + 1, kPlaces + 1);
    }
    return true;
  });
}

ExactElements::Holds ExactElements::ColumnHolds(int col) noexcept {
  if (!columns_known_) std::fill_n(column_, kColumns, -1);
  columns_known_ = true;
  const int at = col % kColumns;
  if (column_[at] == col) return column_holds_[at];
  Holds holds = Holds::kNumbers;
  ForParts(LinesOfB(args_, 0), col, args_.Bdesc.rows, [&](int, int count, const double* values) {
    for (int i = 0; i < count; ++i) {
      if (std::isinf(values[i])) holds = Holds::kInfinities;
      if (!std::isnan(values[i])) continue;
      holds = Holds::kNaN;
      return false;
    }
    return true;
  });
  column_[at] = col;
  column_holds_[at] = holds;
  return holds;
}

double ExactElements::Sum(int row, int col) noexcept {
  LookAtRow(row);
  if (row_holds_ == Holds::kNaN) return kNotANumber;
  const Holds column = ColumnHolds(col);
  if (column == Holds::kNaN) return kNotANumber;
  const Lines a = LinesOfA(args_, 0), b = LinesOfB(args_, 0);
  double sum = 0;
  if (row_holds_ == Holds::kInfinities && column == Holds::kNumbers && infinities_ <= kPlaces) {
    // Terms without an infinity are finite, and beside one without effect.
    for (int i = 0; i < infinities_ && !std::isnan(sum); ++i) {
      double of_b = 0;
      LoadScaledLine(b, col, place_[i], 1, &of_b);
      sum += value_[i] * of_b;
    }
    return sum;
  }
  ForParts(b, col, args_.Bdesc.rows, [&](int k0, int count, const double* of_b) {
    double of_a[kStep];
    LoadScaledLine(a, row, k0, count, of_a);
    for (int i = 0; i < count; ++i) sum += of_a[i] * of_b[i];
    return !std::isnan(sum);
  });
  return sum;
}

double ExactElements::Of(std::int64_t row, std::int64_t col) noexcept {
  const int line = static_cast<int>(row), column = static_cast<int>(col);
  return FinishedSum(args_, 0, line, column, Sum(line, column));
}

double ExactElements::OfGated(std::int64_t row, std::int64_t col) noexcept {
  const GateColumns columns =
      GateColumnsOf(args_.operation.gate_order, args_.Bdesc.cols, static_cast<int>(col));
  return SiluInDouble(Of(row, columns.gate)) * Of(row, columns.up);
}

}  // namespace culet
