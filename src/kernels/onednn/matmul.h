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

/// Parts for `threads` threads that the library writes to D itself: as large as they can be while
/// no thread is left without one, so that A is converted for few of them.
Grid DirectGrid(int m, int n, int threads) noexcept;

/// The same for parts that pass through a thread's FP32 sums, which stay in its caches.
Grid SumsGrid(int m, int n, int threads) noexcept;

/// Bytes of workspace that one of `threads` threads needs: sums of a part and the library's
/// scratchpad; 0 when the library refuses the problem.
std::size_t ThreadBytes(const Library& library, const GemmDesc& desc, int threads) noexcept;

/// A plan's primitives. Errors: UNSUPPORTED with the library's status, RESOURCE_EXHAUSTED.
Result<std::unique_ptr<PreparedKernel>> PrepareMatmul(const Library& library, const GemmArgs& args,
                                                      int threads, std::size_t thread_bytes);

}  // namespace culet::onednn
