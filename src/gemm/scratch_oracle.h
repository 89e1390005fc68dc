// The double-precision product of a synthetic problem, and how far a kernel may be from it.
#pragma once

#include <cstddef>
#include <vector>

#include "culet/desc.h"
#include "culet/scratch.h"
#include "culet/status.h"
#include "gemm/scratch_layout.h"

namespace culet {

/// Reference values at chosen rows x cols, row by row, before the rounding to D's type (and the
/// quantisation of D). Row r is row r % m of matrix r / m of the batch. `slack` is the error that
/// FP32 accumulation in any order may make before the one rounding to D's type; docs/numerics.md
/// derives it.
struct Oracle {
  std::vector<int> rows;
  std::vector<int> cols;
  std::vector<double> reference;
  std::vector<double> slack;
};

/// Computes the oracle from the inputs in a host block that FillBlock made. Small products get
/// every element; of large ones 16384 in 64 rows or fewer: both ends, tile edges and a random rest;
/// of a quantised D whole groups.
/// Errors: RESOURCE_EXHAUSTED when options.stop ends it.
Result<Oracle> MakeOracle(const GemmDesc& desc, const Arrangement& arrangement,
                          const ScratchOptions& options, const std::byte* block,
                          const Accumulator& accumulator = {});

/// The values an element of D may have: those between the roundings of reference - slack and
/// reference + slack. Rounding is monotonic, so a product inside the slack, rounded once, is
/// inside.
struct Interval {
  double low = 0, high = 0;
};
Interval AllowedAround(double reference, double slack, DataType type) noexcept;

/// |value - reference| over the larger half of the interval; above 1 exactly when `value` is not
/// allowed. A NaN is allowed exactly where the reference is one.
double OverBound(double value, double reference, const Interval& allowed) noexcept;

}  // namespace culet
