// Sizes that the blocked family's kernels and their host side agree on.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd_problem.h"

namespace culet {

/// Columns of D a task computes, and elements of k between two additions to the sums in memory.
/// Both are E4M3's scale block, so a task meets one scale of B at a time; 128 x 128 FP32 weights
/// fill 64 KiB, which the second-level cache of any core holds beside the rest.
inline constexpr int kBlockedColumns = kScaleBlock;
inline constexpr int kBlockedDepth = kScaleBlock;

/// Rows of D that share one pass over B; B is packed anew for the next ones.
inline constexpr int kBlockedRows = 512;

/// Floats of a thread's own: packed weights, sums, and a factor for each row.
constexpr std::size_t BlockedThreadFloats(std::size_t m) noexcept {
  const std::size_t rows = m < kBlockedRows ? m : kBlockedRows;
  return std::size_t{kBlockedDepth} * kBlockedColumns + rows * kBlockedColumns +
         RoundUpTo(rows, 16);
}

/// Floats of the activations of one pass, shared by all threads.
constexpr std::size_t BlockedSharedFloats(std::size_t m, std::size_t k) noexcept {
  const std::size_t rows = m < kBlockedRows ? m : kBlockedRows;
  return RoundUpTo(rows * k, 16);
}

/// Floats of the rows of one pass of a D that is quantised.
constexpr std::size_t BlockedValueFloats(std::size_t m, std::size_t n, Epilogue epilogue) noexcept {
  const std::size_t rows = m < kBlockedRows ? m : kBlockedRows;
  return epilogue == Epilogue::kGatedSiluQuant ? RoundUpTo(rows * (n / 2), 16) : 0;
}

/// The memory of one launch: `shared`, `values`, then `threads` times a thread's own.
struct BlockedBuffers {
  float* shared;
  float* values;
  float* own;
  int threads;
};

}  // namespace culet
