// The weights that a small kernel brings to the second-level cache for the product behind it.
#pragma once

#include "culet/graph.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// The first of the weights that the next product behind node `id` reads, side by side with those
/// of other products of its input where they lie so: as many as memory brings while the attention
/// before `id` runs. None where no product is behind it, or one of more rows than kMostRowsToBring.
ReadNext NextWeights(const ComputeGraph& graph, int id);
inline constexpr std::int64_t kMostBytesToBring = 8'000'000, kMostRowsToBring = 1;

}  // namespace culet::cuda_ops
