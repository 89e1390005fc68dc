// Weights that lie one behind the other, as one.
#pragma once

#include <span>

#include "culet/tensor.h"

namespace culet {

/// The rows of all parts in order, where one product or vector can read them so: of one type, of
/// one length, E4M3 in whole blocks, the next where the last ends, scales too. Vectors (1, n) join
/// to (1, all). Not present() where they lie apart.
Weight JoinedWeight(std::span<const Weight* const> parts);

}  // namespace culet
