// Compares the output of a synthetic problem with the oracle.
#pragma once

#include <span>

#include "culet/scratch.h"
#include "gemm/scratch_oracle.h"

namespace culet {

/// Compares what was found where the oracle looks, in its order, into all fields of the report but
/// `unwritten` and `guards_intact`. `allowed` is AllowedAround of each element.
void CompareValues(const Oracle& oracle, std::span<const Interval> allowed,
                   std::span<const double> found, ErrorReport& report);

/// For a quantised D with one of `scales` for each `group` columns of a row: compares each scale
/// with the largest magnitude that its group may have, and each element with its value divided by
/// the stored scale. D has `columns`.
void CompareQuantised(const Oracle& oracle, std::span<const double> codes,
                      std::span<const double> scales, int group, int columns, ErrorReport& report);

}  // namespace culet
