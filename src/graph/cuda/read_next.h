// The weights that a quantize brings to the second-level cache for the products behind it.
#pragma once

#include "culet/graph.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// The first of the weights of the products that read node `id`, of the first product alone where
/// they lie apart: as many as memory brings while the attention before `id` runs. None where no
/// product reads it, or `id` has more rows than kMostRowsToBring.
ReadNext NextWeights(const ComputeGraph& graph, int id);
inline constexpr std::int64_t kMostBytesToBring = 8'000'000, kMostRowsToBring = 1;

}  // namespace culet::cuda_ops
