#include "gemm/scratch_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culet {

void CompareValues(const Oracle& oracle, const DLines& d, ErrorReport& report) {
  double error2 = 0, reference2 = 0, bound2 = 0;
  std::size_t index = 0;
  for (const int row : oracle.rows) {
    for (const int col : oracle.cols) {
      const double value = d.At(row, col);
      const double reference = oracle.reference[index];
      const Interval allowed = AllowedAround(reference, oracle.slack[index], d.layout.type);
      ++index;
      const double ratio = OverBound(value, reference, allowed);
      if (report.checked == 0 || ratio > report.max_over_bound) {
        report.max_over_bound = ratio;
        report.worst_row = row;
        report.worst_col = col;
        report.worst_value = value;
        report.worst_reference = reference;
      }
      ++report.checked;
      const double bound = std::max(allowed.high - reference, reference - allowed.low);
      if (!std::isfinite(reference) || !std::isfinite(bound)) continue;
      error2 += (value - reference) * (value - reference);
      reference2 += reference * reference;
      bound2 += bound * bound;
    }
  }
  if (reference2 > 0) {
    report.relative_l2 = std::sqrt(error2 / reference2);
    report.relative_bound = std::sqrt(bound2 / reference2);
  }
}

std::string ErrorReport::ToString() const {
  if (ok()) return "ok";
  if (checked == 0) return "nothing was compared";
  if (!guards_intact) return "memory outside D was written";
  if (unwritten > 0) return fmt::format("{} elements of D were not written", unwritten);
  return fmt::format("D({}, {}) is {:.9g}, but the reference is {:.9g}: {:.3g} times the bound",
                     worst_row, worst_col, worst_value, worst_reference, max_over_bound);
}

}  // namespace culet
