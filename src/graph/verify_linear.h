// What ComputeGraph::Verify demands of linear attention and of parts of heads.
#pragma once

#include <string>

#include "culet/graph.h"

namespace culet {

/// Of a HeadSlice, CausalConv or GatedDelta whose inputs exist and come first: the reason for a
/// refusal; empty is fine.
std::string WhyNotLinear(const ComputeGraph& graph, int id);

}  // namespace culet
