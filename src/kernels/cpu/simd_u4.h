// Sizes that the kernels of weights that are codes and their host side agree on.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd_problem.h"

namespace culet {

/// Columns of D that a task computes, and columns whose weights are decoded side by side.
inline constexpr int kU4Strip = 64;
inline constexpr int kU4Cols = 4;

/// Groups of weights are whole multiples of this: two of the widest vectors.
inline constexpr int kU4Step = 32;

/// Or they are of this size.
inline constexpr int kU4SmallGroup = 16;

/// Activations that a tile reads before its sums are added to those in memory: so many stay in the
/// first cache while all columns of the strip read them.
inline constexpr std::size_t kU4TileFloats = 8192;

/// The most rows of a tile, by the number of vector registers.
inline constexpr int kU4RowsOf32 = 6;
inline constexpr int kU4RowsOf16 = 2;

/// Floats of the activations, shared by all threads.
constexpr std::size_t U4SharedFloats(std::size_t m, std::size_t k) noexcept {
  return m * RoundUpTo(k, kU4Step);
}

/// Groups of a column, in floats that whole vectors may write.
constexpr std::size_t U4GroupFloats(std::size_t groups) noexcept { return RoundUpTo(groups, 16); }

/// Floats of a thread's own: sums, and the scales and the offsets of a strip's columns.
constexpr std::size_t U4ThreadFloats(std::size_t m, std::size_t groups) noexcept {
  return m * kU4Strip + 2 * kU4Strip * U4GroupFloats(groups);
}

/// The memory of one launch: `shared`, then `threads` times a thread's own.
struct U4Buffers {
  float* shared;
  float* own;
  int threads;
};

}  // namespace culet
