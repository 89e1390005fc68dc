// Attention of which values are parts of the keys (AttentionParams::value_dim): one read of a key
// serves several query heads, for their scores and for their sums of values.
#pragma once

#include "kernels/cuda_ops/attention_keys.cuh"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// The plan for such a node.
AttentionPlan PlanLatentAttention(const AttentionShape& shape, int multiprocessors);

/// Requires: a plan of PlanLatentAttention; what Attention completes. Up to two launches.
cudaError_t LatentAttention(const AttentionArgs& args, LaunchStream stream);

}  // namespace culet::cuda_ops
