// Attention of which values are parts of the keys (AttentionParams::value_dim): one read of a key
// serves several query heads, for their scores and for their sums of values.
#pragma once

#include "kernels/cuda_ops/attention_keys.cuh"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Stages of the kernel for every GPU where shared memory has room for them: 147 KB in flight.
inline constexpr int kManyLatentStages = 5;

/// Queries of a tile of the kernel on warpgroup products.
inline constexpr int kLatentWgmmaQueries = 64;

/// The plan for such a node; the arguments are those of PlanAttention.
AttentionPlan PlanLatentAttention(const AttentionShape& shape, bool exact, int multiprocessors,
                                  bool wgmma);

/// As PrepareAttention.
cudaError_t PrepareLatentAttention(const AttentionShape& shape, const AttentionPlan& plan);

/// Requires: a plan of PlanLatentAttention; what Attention completes. One launch; `splits` are then
/// to be merged, where there are several.
cudaError_t LatentAttention(const AttentionArgs& args, LaunchStream stream, int* splits);

// The kernels on tensor cores, by type.
cudaError_t LatentMmaOfBfloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t LatentMmaOfFloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t AllowLatentMmaOfBfloat16(const AttentionPlan& plan);
cudaError_t AllowLatentMmaOfFloat16(const AttentionPlan& plan);
cudaError_t LatentWgmmaOfBfloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t LatentWgmmaOfFloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t AllowLatentWgmmaOfBfloat16();
cudaError_t AllowLatentWgmmaOfFloat16();

}  // namespace culet::cuda_ops
