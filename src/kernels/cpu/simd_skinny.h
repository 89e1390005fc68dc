// Sizes that the skinny family's kernels and their host side agree on.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd_problem.h"

namespace culet {

/// Rows of A that the family takes; with more, a blocked kernel reads the converted weights faster.
inline constexpr int kSkinnyMaxRows = 16;

/// Columns of D that a task computes before it stores them: B's scale block, so that a tile meets
/// one scale of B at a time.
inline constexpr int kSkinnyStrip = kScaleBlock;

/// Prefetch distance of each column's reads into L1, in bytes. 512 does as well.
inline constexpr std::size_t kSkinnyAheadBytes = 1024;

/// As above for one row of weights without scales, into L2: such a loop is so short that a core
/// runs ahead to lines that the first cache is still waiting for, and its few places for those are
/// then all that it has under way.
inline constexpr std::size_t kSkinnyFarBytes = 2048;

/// Rows of converted activations are padded to this many elements: the largest group of weights
/// that a decoder takes.
inline constexpr std::size_t kSkinnyPad = 64;

/// N-major weights: most columns of D that a task computes, and steps of K between two additions to
/// its sums in memory. As many columns as lie beside each other are read at a time, of as few rows
/// as first caches hold beside the sums.
inline constexpr std::size_t kRowsStrip = 512;
inline constexpr std::size_t kRowsDepth = 16;

/// Columns of a task, a multiple of 64, so that each of `threads` threads has one where it can.
constexpr std::size_t RowsStripFor(std::size_t n, int threads) noexcept {
  const auto of_thread =
      (n + static_cast<std::size_t>(threads) - 1) / static_cast<std::size_t>(threads);
  const std::size_t tasks = (of_thread + kRowsStrip - 1) / kRowsStrip;
  return RoundUpTo((of_thread + tasks - 1) / tasks, 64);
}

/// Elements of A that a task converts: some microseconds of work.
inline constexpr std::size_t kSkinnySlice = 4096;

}  // namespace culet
