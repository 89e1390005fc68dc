// What ComputeGraph::Verify demands of routed experts.
#pragma once

#include <string>

#include "culet/graph.h"

namespace culet {

/// Of a Route, Routes, ExpertMulMat or Combine whose inputs exist and come first: the reason for a
/// refusal; empty is fine.
std::string WhyNotExperts(const ComputeGraph& graph, int id);

}  // namespace culet
