// Attention nodes of a graph as the kernels take them.
#pragma once

#include "culet/kernel_dispatch.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Of a verified Attention node.
AttentionShape ShapeOfAttention(const ComputeGraph& graph, const TensorNode& node);

/// Whether an attention node with single_rows may read its inputs, except its queries and its rows'
/// own keys and values, while earlier kernels still run. True if no earlier kernel of the graph
/// writes them; the graph's first kernel begins only after the previous launch has ended.
bool MayReadEarly(const ComputeGraph& graph, const TensorNode& node);

/// The arguments of such a node in a launch, alone or in a fusion; without plan, workspace and
/// counters.
AttentionArgs ArgsOfAttention(const NodeLaunch& launch, const TensorNode& node);

/// "/s8": the number of splits at most.
std::string NameOfSplits(const AttentionSplits& how);
/// The kernel of an attention whose values are parts of its keys.
std::string NameOfLatent(const AttentionPlan& plan);
/// The decoding kernel's name: "decode/s8", or "near/s8" for the kernel for few keys.
std::string NameOfDecode(const AttentionPlan& plan);

}  // namespace culet::cuda_ops
