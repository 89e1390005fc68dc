// A router's product and the routes that it makes, with the norm before them, as one launch.
#pragma once

#include <memory>

#include "culet/tensor.h"
#include "graph/cuda/fusions.h"

namespace culet::cuda_ops {

/// Whether one launch computes the Route with id `route` and the product whose logits it reads.
/// Those have to be alone in reading each other.
bool TakesRouter(const ComputeGraph& graph, int route);

/// Requires: the Route of the fusion is one that TakesRouter takes, its other nodes are those that
/// the product's input is made by or, as codes, made into.
std::unique_ptr<PreparedFusion> MakePreparedRouter(const ComputeGraph& graph, const Fusion& fusion);

}  // namespace culet::cuda_ops
