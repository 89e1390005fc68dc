// Attention nodes of a graph as the kernels take them.
#pragma once

#include "culet/kernel_dispatch.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Of a verified Attention node.
AttentionShape ShapeOfAttention(const ComputeGraph& graph, const TensorNode& node);

/// Whether kernels may read what an attention node with single_rows reads, but for its queries and
/// its rows' own keys and values, while those before them still run: nothing that is launched
/// before it in the graph writes any of that, and the graph's first kernel lets nothing of the
/// launch before it go on.
bool MayReadEarly(const ComputeGraph& graph, const TensorNode& node);

/// The arguments of such a node in a launch, alone or in a fusion; without plan, workspace and
/// counters.
AttentionArgs ArgsOfAttention(const NodeLaunch& launch, const TensorNode& node);

/// "/s8": into how many splits it may go.
std::string NameOfSplits(const AttentionSplits& how);
/// Of the kernel that decodes: "decode/s8"; "near/s8" where it is that for few keys.
std::string NameOfDecode(const AttentionPlan& plan);

}  // namespace culet::cuda_ops
