// Operations of a graph that one kernel computes together, under the rules of ops.h. Each value
// between them is rounded to its type as if it were stored. Rows lie in whole vectors: columns and
// head sizes are multiples of 8, pointers aligned to 16 bytes.
#pragma once

#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Where the E4M3 codes of a value go, as QuantizeRows makes them; null: nowhere.
struct CodesTo {
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
};

/// A residual sum, or some of its rows, its norm, and the codes of that (fused_norm.cu).
struct FusedNormArgs {
  const void* x = nullptr;
  const void* y = nullptr;  ///< null: the norm is of x
  DataType x_type = DataType::kNull;
  const std::int32_t* from = nullptr;  ///< (rows): rows of x and y; null: row i is row i
  std::int64_t source_rows = 0;        ///< of x and y, with `from`; other rows are NaN
  void* sum = nullptr;  ///< of x's type; may be x or y; null: nowhere, as with `from`
  const void* gamma = nullptr;
  DataType gamma_type = DataType::kNull;
  float epsilon = 0;
  void* out = nullptr;  ///< null: nowhere
  DataType out_type = DataType::kNull;
  CodesTo to;
  std::int64_t rows = 0;
  int width = 0;
};
cudaError_t FusedNorm(const FusedNormArgs& args, LaunchStream stream);

/// SwiGlu of rows that lie `stride` elements apart, and its codes (fused_swiglu.cu).
struct FusedSwiGluArgs {
  const void* gate = nullptr;
  const void* up = nullptr;
  std::int64_t stride = 0;
  DataType type = DataType::kNull;  ///< of gate, up and the value
  void* out = nullptr;              ///< (rows, cols); null: nowhere
  CodesTo to;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
cudaError_t FusedSwiGlu(const FusedSwiGluArgs& args, LaunchStream stream);

/// What follows the products of q, k and v, which lie side by side: norms of the heads of q and k,
/// rotary embedding of both, and the writes to the caches (fused_heads.cu).
struct FusedHeadsArgs {
  const void* qkv = nullptr;  ///< (rows, (heads + 2 kv_heads) * head_dim)
  DataType type = DataType::kNull;
  const void* q_gamma = nullptr;  ///< null: q and k are not normalised
  const void* k_gamma = nullptr;
  DataType q_gamma_type = DataType::kNull, k_gamma_type = DataType::kNull;
  float q_epsilon = 0, k_epsilon = 0;
  RopeArgs rope;        ///< positions, turns, layout, attention_factor, half
  void* out = nullptr;  ///< q (rows, heads * head_dim)
  void* keys = nullptr;
  void* values = nullptr;
  DataType cache_type = DataType::kNull;
  const float* key_scales = nullptr;  ///< (kv_heads), of float8_e4m3
  const float* value_scales = nullptr;
  const std::int32_t* key_slots = nullptr;  ///< (rows)
  const std::int32_t* value_slots = nullptr;
  std::int64_t cache_rows = 0;
  int heads = 0, kv_heads = 0;
  int head_dim = 0;  ///< at most kMostHeadDim
  std::int64_t rows = 0;
};
/// Requires: a layout kNorm or `half` a multiple of 8.
cudaError_t FusedHeads(const FusedHeadsArgs& args, LaunchStream stream);

/// FusedHeads and the attention behind it in one launch, for rows that are alone in their sequences
/// (attention_heads.cuh); `heads.out` and `attention.q` go unused. Each row's own key and value go
/// to its slot, and its scores take them from the launch, not from the cache. Of a row with a
/// negative slot they are stored nowhere. What the launch stores no other row of it may read.
/// Requires: a plan with decoding alone, and key_slots that are value_slots.
cudaError_t HeadsAttention(const FusedHeadsArgs& heads, const AttentionArgs& attention,
                           LaunchStream stream);
/// Allows it the shared memory that it needs; once for a device.
cudaError_t PrepareHeadsAttention(const AttentionShape& shape, const AttentionPlan& plan);

}  // namespace culet::cuda_ops
