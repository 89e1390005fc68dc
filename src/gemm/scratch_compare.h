// What became of the output of a synthetic problem.
#pragma once

#include <cstddef>
#include <vector>

#include "base/float_types.h"
#include "culet/scratch.h"
#include "gemm/scratch_layout.h"
#include "gemm/scratch_oracle.h"

namespace culet {

/// The lines of D that an oracle looks at, on the host.
struct DLines {
  MatrixLayout layout;
  std::vector<std::byte> bytes;
  std::vector<std::size_t> starts;  ///< of each line in `bytes`; of one that is there

  double At(int row, int col) const noexcept {
    const bool by_rows = layout.order == Order::kRowMajor;
    const std::size_t start = starts[static_cast<std::size_t>(by_rows ? row : col)];
    return LoadAsDouble(bytes.data() + start, layout.type, by_rows ? col : row);
  }
};

/// Compares the values, into all fields of the report but `unwritten` and `guards_intact`.
void CompareValues(const Oracle& oracle, const DLines& d, ErrorReport& report);

}  // namespace culet
