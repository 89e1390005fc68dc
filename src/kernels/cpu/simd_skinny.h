// Sizes that the skinny family's kernels and their host side agree on.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd_problem.h"

namespace culet {

/// Rows of A that the family takes; beyond, a blocked kernel reads the converted weights faster.
inline constexpr int kSkinnyMaxRows = 16;

/// Columns of D that a task computes before it stores them: B's scale block, so that a tile meets
/// one scale of B at a time.
inline constexpr int kSkinnyStrip = kScaleBlock;

/// How far ahead of each column's reads memory is asked for. 512 to 4096 do equally well.
inline constexpr std::size_t kSkinnyAheadBytes = 2048;

/// Rows of converted activations are padded to this many elements: the largest group of weights
/// that a decoder takes.
inline constexpr std::size_t kSkinnyPad = 64;

/// Elements of A that a task converts: some microseconds of work.
inline constexpr std::size_t kSkinnySlice = 4096;

}  // namespace culet
