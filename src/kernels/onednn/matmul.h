// A product cut into parts, each a oneDNN primitive that runs in one thread of culet's pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "culet/kernel.h"
#include "kernels/onednn/library.h"

namespace culet::onednn {

/// How D is cut: parts of `rows` x `cols`, the last ones smaller.
struct Grid {
  int m, n;
  int rows, cols;

  int row_parts() const noexcept { return (m - 1) / rows + 1; }
  int col_parts() const noexcept { return (n - 1) / cols + 1; }
  int parts() const noexcept { return row_parts() * col_parts(); }
};

/// Parts for `threads` threads: as large as they can be while no thread is left without one.
Grid GridFor(int m, int n, int threads) noexcept;

/// Bytes of workspace that one thread needs for a part: its sums in FP32 and the library's
/// scratchpad; 0 when the library refuses the problem.
std::size_t ThreadBytes(const Library& library, const GemmDesc& desc, const Grid& grid) noexcept;

/// A plan's primitives. Errors: UNSUPPORTED with the library's status, RESOURCE_EXHAUSTED.
Result<std::unique_ptr<PreparedKernel>> PrepareMatmul(const Library& library, const GemmArgs& args,
                                                      const Grid& grid, std::size_t thread_bytes);

}  // namespace culet::onednn
