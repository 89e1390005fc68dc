// Weights that are contiguous in memory, seen as one.
#pragma once

#include <span>

#include "culet/tensor.h"

namespace culet {

/// The rows of all parts in order, if one product can read them as one weight: one type, one row
/// length, E4M3 in whole blocks, and each part (and its scales) begins where the last one ends.
/// Vectors (1, n) join to (1, all). Otherwise the result is not present().
Weight JoinedWeight(std::span<const Weight* const> parts);

}  // namespace culet
