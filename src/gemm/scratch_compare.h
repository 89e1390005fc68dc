// What became of the output of a synthetic problem.
#pragma once

#include <cstddef>
#include <vector>

#include "base/float_types.h"
#include "culet/scratch.h"
#include "gemm/scratch_layout.h"
#include "gemm/scratch_oracle.h"

namespace culet {

/// The lines of D (or of its scales) that an oracle looks at, on the host. Row r is row r % rows of
/// matrix r / rows.
struct DLines {
  MatrixLayout layout;
  std::vector<std::byte> bytes;
  std::vector<std::size_t> starts;  ///< of each line in `bytes`; of one that is there

  /// The line that holds an element; those of a batch's matrices follow one another.
  std::size_t LineOf(int row, int col) const noexcept {
    if (layout.order == Order::kRowMajor) return static_cast<std::size_t>(row);
    return static_cast<std::size_t>(row / layout.rows) * static_cast<std::size_t>(layout.cols) +
           static_cast<std::size_t>(col);
  }

  double At(int row, int col) const noexcept {
    const std::size_t start = starts[LineOf(row, col)];
    return LoadAsDouble(bytes.data() + start, layout.type,
                        layout.order == Order::kRowMajor ? col : row % layout.rows);
  }
};

/// Compares the values, into all fields of the report but `unwritten` and `guards_intact`.
void CompareValues(const Oracle& oracle, const DLines& d, ErrorReport& report);

/// The same for a quantised D with scales `w` for groups of `group` columns: each scale against the
/// largest magnitude that its group may have, each element against what the scale that is there
/// makes of its value.
void CompareQuantised(const Oracle& oracle, const DLines& d, const DLines& w, int group,
                      ErrorReport& report);

}  // namespace culet
