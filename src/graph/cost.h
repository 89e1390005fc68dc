// What a launch must move and compute at least.
#pragma once

#include "culet/graph.h"
#include "graph/schedule.h"

namespace culet {

/// Values that never leave the step count nothing, those that several of its nodes read once.
NodeCost CostOf(const ComputeGraph& graph, const GraphStep& step) noexcept;

}  // namespace culet
