// The weights that a quantize prefetches into L2 for the products after it.
#pragma once

#include "culet/graph.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// The beginning of the weights of the products that read node `id` (of the first product, if they
/// are not contiguous): as many bytes as memory delivers while the attention before `id` runs. None
/// if no product reads it, or if `id` has more rows than kMostRowsToBring.
ReadNext NextWeights(const ComputeGraph& graph, int id);
inline constexpr std::int64_t kMostBytesToBring = 8'000'000, kMostRowsToBring = 1;

}  // namespace culet::cuda_ops
