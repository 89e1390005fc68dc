// Copies of matrices whose rows begin on 16 bytes, which is where TMA can load them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace culet::sm90 {

/// One matrix: `rows` rows of `row_bytes` bytes, which lie `from_pitch` and `to_pitch` bytes apart.
/// The bytes of `to` between two rows stay as they are.
struct RowsToPad {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t from_pitch = 0, to_pitch = 0;
  int rows = 0;  ///< 0: no matrix
  int row_bytes = 0;
};

/// A and B of one product.
inline constexpr int kMostPadded = 2;
struct PadRowsParams {
  RowsToPad matrix[kMostPadded];
  int segments[kMostPadded] = {};  ///< pieces of a row, one a warp; LaunchPadRows sets them
};

/// The bytes that a row of `row_bytes` takes in a copy.
constexpr std::int64_t PaddedBytes(std::int64_t row_bytes) { return (row_bytes + 15) / 16 * 16; }

/// Copies on `stream` of the current device, with at most `sms` multiprocessors' worth of blocks.
/// With `pdl` the launch may begin before the kernel before has ended; it waits for that kernel's
/// end before it reads.
cudaError_t LaunchPadRows(PadRowsParams params, int sms, bool pdl, cudaStream_t stream);

/// Loads the kernel on the current device; not during a capture.
cudaError_t LoadPadRows();

}  // namespace culet::sm90
