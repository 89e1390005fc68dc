// All-reduces that a rank's dispatch launches together with what follows them.
#pragma once

#include <string>
#include <vector>

#include "culet/fusion.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "culet/ranks.h"

namespace culet {

/// The names of all of them.
std::vector<std::string> ExchangeFusionNames();
bool IsExchangeFusion(const Fusion& fusion);
/// All-reduces with the sum, the norm and the codes that `exchange` computes with them, the largest
/// first.
std::vector<Fusion> FindExchangeFusions(const ComputeGraph& graph, const RankExchange& exchange);
/// Requires: a launch of such a fusion.
SumAndNorm ArgsOfExchange(const NodeLaunch& launch);

}  // namespace culet
