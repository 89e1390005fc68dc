#include "gemm/scratch_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/e4m3_group.h"
#include "base/float_types.h"

namespace culet {

namespace {

// Accumulates a report over all elements.
class Tally {
 public:
  explicit Tally(ErrorReport& report) : report_(report) {}

  void Add(int row, int col, double value, double reference, const Interval& allowed) {
    Worst(row, col, value, reference, OverBound(value, reference, allowed));
    ++report_.checked;
    const double bound = std::max(allowed.high - reference, reference - allowed.low);
    if (!std::isfinite(reference) || !std::isfinite(bound)) return;
    error2_ += (value - reference) * (value - reference);
    reference2_ += reference * reference;
    bound2_ += bound * bound;
  }

  void Worst(int row, int col, double value, double reference, double ratio) {
    if (report_.checked > 0 && ratio <= report_.max_over_bound) return;
    report_.max_over_bound = ratio;
    report_.worst_row = row;
    report_.worst_col = col;
    report_.worst_value = value;
    report_.worst_reference = reference;
  }

  void Finish() {
    if (reference2_ <= 0) return;
    report_.relative_l2 = std::sqrt(error2_ / reference2_);
    report_.relative_bound = std::sqrt(bound2_ / reference2_);
  }

 private:
  ErrorReport& report_;
  double error2_ = 0, reference2_ = 0, bound2_ = 0;
};

// The scales that a group may have, and whether one of its values may be or is a NaN.
struct GroupScale {
  Interval scale;
  double reference = 0;
  bool may_be_nan = false, is_nan = false;
};

GroupScale ScaleOf(const double* reference, const double* slack, int count) {
  constexpr DataType kFloat = DataType::kFloat32;
  GroupScale group;
  double low = 0, high = 0, amax = 0;
  for (int i = 0; i < count; ++i) {
    const double size = std::fabs(reference[i]);
    // Rounded to FP32, what is too large is infinite.
    const double largest = RoundTo(kFloat, size + slack[i]);
    const double least = RoundTo(kFloat, std::max(0.0, size - slack[i]));
    group.may_be_nan |= !std::isfinite(largest);
    group.is_nan |= !std::isfinite(least) || std::isnan(size);
    low = std::max(low, least);
    high = std::max(high, largest);
    amax = std::max(amax, size);
  }
  const auto scale = [](double value) {
    return static_cast<double>(ScaleOfE4m3Group(static_cast<float>(value), true));
  };
  if (!group.may_be_nan) {
    // An all-zero group has the scale 1, the smallest others have 2^-149.
    group.scale = {low > 0 ? scale(low) : 0x1p-149,
                   low > 0 ? scale(high) : std::max(scale(high), 1.0)};
    group.reference = scale(RoundTo(kFloat, amax));
  }
  return group;
}

}  // namespace

void CompareValues(const Oracle& oracle, std::span<const Interval> allowed,
                   std::span<const double> found, ErrorReport& report) {
  Tally tally(report);
  std::size_t index = 0;
  for (const int row : oracle.rows) {
    for (const int col : oracle.cols) {
      tally.Add(row, col, found[index], oracle.reference[index], allowed[index]);
      ++index;
    }
  }
  tally.Finish();
}

void CompareQuantised(const Oracle& oracle, std::span<const double> codes,
                      std::span<const double> scales, int group, int columns, ErrorReport& report) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kDivision = 0x1p-23;  // of the FP32 quotient, which is rounded before E4M3
  Tally tally(report);
  std::size_t index = 0, next_scale = 0;
  for (const int row : oracle.rows) {
    for (std::size_t j = 0; j < oracle.cols.size();) {
      const int first = oracle.cols[j];
      const int count = std::min(group, columns - first);
      const double* const reference = &oracle.reference[index];
      const double* const slack = &oracle.slack[index];
      const double* const code = &codes[index];
      index += static_cast<std::size_t>(count);
      j += static_cast<std::size_t>(count);
      const GroupScale allowed = ScaleOf(reference, slack, count);
      const double scale = scales[next_scale++];
      const bool nan = std::isnan(scale);
      const bool right =
          nan ? allowed.may_be_nan
              : !allowed.is_nan && (allowed.may_be_nan ||
                                    (allowed.scale.low <= scale && scale <= allowed.scale.high));
      for (int i = 0; i < count; ++i) {
        const double value = code[i];
        if (nan) {  // all of the group's values are none, too
          tally.Add(row, first + i, value, kNaN, {kNaN, kNaN});
          continue;
        }
        const auto quotient = [&](double y, double widened) {
          const double x = y / scale;
          return RoundTo(DataType::kFloat8_e4m3, x + std::copysign(kDivision * x, widened));
        };
        const Interval codes{quotient(reference[i] - slack[i], -1),
                             quotient(reference[i] + slack[i], 1)};
        tally.Add(row, first + i, value * scale, reference[i],
                  {codes.low * scale, codes.high * scale});
      }
      if (!right) tally.Worst(row, first, scale, allowed.reference, kInfinity);
    }
  }
  tally.Finish();
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
