// What ranks must have alike in their graphs of one model.
#pragma once

#include <string>

#include "culet/graph.h"

namespace culet {

/// A line an exchange, with the nodes before it: names, operations, types and rows, but for the
/// sizes of a rank's own part. Empty for a graph without exchanges.
std::string ExchangePlanOf(const ComputeGraph& graph);

}  // namespace culet
