// Problems beyond one plain product: gated epilogues, strided batches, zero points, 4-bit weights.
#pragma once

#include <vector>

#include "culet/desc.h"

namespace culet {

/// `quick`: the smaller ones. Few kernels take any; the reference takes all.
std::vector<GemmDesc> SpecialProblems(int arch, bool quick);

}  // namespace culet
