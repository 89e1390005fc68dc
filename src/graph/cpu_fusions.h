// The groups of nodes that the CPU dispatch computes as one.
#pragma once

#include <vector>

#include "culet/graph.h"

namespace culet {

/// A residual sum and the norm of its rows: the sum is normed while it is in the cache.
inline constexpr const char* kAddRmsNorm = "add_rms_norm";

/// All of them in the graph.
std::vector<Fusion> CpuFusions(const ComputeGraph& graph);

}  // namespace culet
