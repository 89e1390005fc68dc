// The gated delta rule of prompts on a GPU, in chunks of 64 tokens (linear_chunks.cu).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

inline constexpr int kDeltaChunk = 64;
/// Sequences with fewer tokens go token by token.
inline constexpr int kLeastChunked = 16;

struct DeltaShape {
  DataType type = DataType::kNull;  ///< of queries, keys and values
  std::int64_t tokens = 0, sequences = 0;
  int value_heads = 0, key_dim = 0;
};

/// Bytes that GatedDeltaChunks needs; 0 where it has nothing to do: where no sequence has enough
/// tokens, keys are longer than 128, or the device's blocks have too little shared memory. Also
/// lets its kernels have that. Needs the device to be the current one.
std::size_t PrepareDeltaChunks(const DeltaShape& shape);

/// As GatedDelta. Requires: `workspace` of PrepareDeltaChunks' bytes, which are not 0, aligned to
/// 256 bytes.
cudaError_t GatedDeltaChunks(const GatedDeltaArgs& args, void* workspace, LaunchStream stream);

/// Its part that does not depend on states, for all chunks at once. Requires: as GatedDeltaChunks.
cudaError_t SolveDeltaChunks(const GatedDeltaArgs& args, void* workspace, LaunchStream stream);

}  // namespace culet::cuda_ops
