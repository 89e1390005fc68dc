#include "gemm/scratch_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/float_types.h"
#include "base/matrix_index.h"
#include "gemm/scratch_fill.h"

namespace culet {
namespace {

// Whether every byte of D's region that is not D still holds what the image has there.
bool GuardsIntact(const Region& d, const std::byte* found, const std::byte* image) noexcept {
  const auto same = [&](std::size_t begin, std::size_t end) {
    return std::memcmp(found + begin, image + begin, end - begin) == 0;
  };
  const std::size_t data = d.data - d.begin, end = d.end - d.begin;
  if (!same(0, data)) return false;
  for (std::size_t line = 0; line < d.lines; ++line) {
    const std::size_t gap = data + line * d.pitch_bytes + d.line_bytes;
    const std::size_t next = line + 1 < d.lines ? gap + d.pitch_bytes - d.line_bytes : end;
    if (!same(gap, next)) return false;
  }
  return true;
}

template <class Element>
std::size_t CountPoisonAs(const Region& d, const std::byte* found) noexcept {
  const auto poison = static_cast<Element>(PoisonWord(d.layout.type));
  const std::size_t elements = d.line_bytes / sizeof(Element);
  std::size_t count = 0;
  for (std::size_t line = 0; line < d.lines; ++line) {
    const auto* element =
        reinterpret_cast<const Element*>(found + (d.data - d.begin) + line * d.pitch_bytes);
    count += static_cast<std::size_t>(std::count(element, element + elements, poison));
  }
  return count;
}

std::size_t CountPoison(const Region& d, const std::byte* found) noexcept {
  switch (SizeOf(d.layout.type)) {
    case 4:
      return CountPoisonAs<std::uint32_t>(d, found);
    case 2:
      return CountPoisonAs<std::uint16_t>(d, found);
    default:
      return CountPoisonAs<std::uint8_t>(d, found);
  }
}

void CompareValues(const Oracle& oracle, const MatrixLayout& layout, const std::byte* d,
                   ErrorReport& report) {
  double error2 = 0, reference2 = 0, bound2 = 0;
  std::size_t index = 0;
  for (const int row : oracle.rows) {
    for (const int col : oracle.cols) {
      const double value = LoadAsDouble(d, layout.type, IndexOf(layout, row, col));
      const double reference = oracle.reference[index];
      const Interval allowed = AllowedAround(reference, oracle.slack[index], layout.type);
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

}  // namespace

ErrorReport CompareOutput(const Region& d, const std::byte* found, const std::byte* image,
                          const Oracle& oracle) {
  ErrorReport report;
  report.guards_intact = GuardsIntact(d, found, image);
  report.unwritten = CountPoison(d, found);
  CompareValues(oracle, d.layout, found + (d.data - d.begin), report);
  return report;
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
