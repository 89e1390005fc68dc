// A product cut into parts, each a oneDNN primitive that runs in one thread of culet's pool.
#pragma once

#include <cstddef>
#include <memory>

#include "culet/kernel.h"
#include "kernels/onednn/grid.h"
#include "kernels/onednn/library.h"

namespace culet::onednn {

/// Bytes of workspace that one of `threads` threads needs: sums of a part and the library's
/// scratchpad; 0 when the library refuses the problem.
std::size_t ThreadBytes(const Library& library, const GemmDesc& desc, int threads) noexcept;

/// A plan's primitives. `desc` is Describe(args).
/// Errors: UNSUPPORTED with the library's status, RESOURCE_EXHAUSTED.
Result<std::unique_ptr<PreparedKernel>> PrepareMatmul(const Library& library, const GemmArgs& args,
                                                      const GemmDesc& desc, int threads,
                                                      std::size_t thread_bytes);

}  // namespace culet::onednn
