// Linear attention of a graph, in FP32 on the host with all threads (linear_attention.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/state_rows.h"
#include "culet/tensor.h"

namespace culet::ops {

/// As a graph's CausalConv, with the weight the other way round.
struct CausalConvArgs {
  GatedDeltaParams params;
  StateRows states;
  const float* x = nullptr;       ///< (tokens, in)
  const float* weight = nullptr;  ///< (taps, cols)
  float* out = nullptr;           ///< (tokens, cols)
  std::int64_t in = 0, cols = 0, taps = 0;
};
void CausalConv(const CausalConvArgs& args);

/// Tokens of a chunk of GatedDelta, and of a sequence that goes in chunks at least.
inline constexpr std::int64_t kDeltaChunk = 64, kLeastDeltaChunked = 16;

/// As a graph's GatedDelta.
struct GatedDeltaArgs {
  GatedDeltaParams params;
  StateRows states;
  const float* x = nullptr;       ///< (tokens, qkv_cols)
  const float* gates = nullptr;   ///< (tokens, 2 * value_heads)
  const float* decays = nullptr;  ///< (value_heads): exp(gamma)
  const float* bias = nullptr;    ///< (value_heads)
  float epsilon = 0;
  float* out = nullptr;        ///< (tokens, out_cols)
  float* workspace = nullptr;  ///< GatedDeltaWorkspace floats
};
void GatedDelta(const GatedDeltaArgs& args);
std::size_t GatedDeltaWorkspace(const GatedDeltaParams& params, std::int64_t sequences);

/// Elements [first, first + count) of each of `heads` heads of `size`, of all rows together.
void HeadSlice(const float* x, float* out, std::int64_t heads, std::int64_t size,
               std::int64_t first, std::int64_t count);

}  // namespace culet::ops
