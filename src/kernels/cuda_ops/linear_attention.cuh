// What the kernels of linear attention share.
#pragma once

#include <cstdint>

#include "base/state_rows.h"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

// Any type, known at run time: for what is read once.

__device__ __forceinline__ float LoadAs(const void* from, DataType type, std::int64_t at) {
  if (type == DataType::kBfloat16) return ToFloat(static_cast<const __nv_bfloat16*>(from)[at]);
  if (type == DataType::kFloat16) return ToFloat(static_cast<const __half*>(from)[at]);
  return static_cast<const float*>(from)[at];
}

__device__ __forceinline__ void StoreAs(float value, void* to, DataType type, std::int64_t at) {
  if (type == DataType::kBfloat16) {
    Round(value, static_cast<__nv_bfloat16*>(to) + at);
  } else {
    static_cast<float*>(to)[at] = value;
  }
}

/// A sequence's tokens [begin, end), and its state: null where there is none.
struct Sequence {
  std::int64_t begin, end;
  const float* from;
  float* to;
};

__device__ __forceinline__ std::int64_t Within(std::int64_t value, std::int64_t least,
                                               std::int64_t most) {
  return value < least ? least : value > most ? most : value;
}

/// Requires: `number` below states.sequences.
__device__ __forceinline__ Sequence SequenceAt(const StateRows& states, std::int64_t number) {
  Sequence found;
  found.begin = Within(states.starts[number], 0, states.tokens);
  found.end = Within(states.starts[number + 1], found.begin, states.tokens);
  const std::int64_t row = states.rows[number];
  found.to = row >= 0 && row < states.count ? states.states + row * states.cols : nullptr;
  const bool first = found.begin == found.end || states.positions[found.begin] == 0;
  found.from = first ? nullptr : found.to;
  return found;
}

__device__ __forceinline__ float SoftPlus(float x) {
  return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

/// The gated delta rule, token by token, of the sequences with fewer than `most_tokens`.
cudaError_t GatedDeltaTokens(const GatedDeltaArgs& args, std::int64_t most_tokens,
                             LaunchStream stream);

}  // namespace culet::cuda_ops
