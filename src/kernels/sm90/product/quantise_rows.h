// FP32 rows to E4M3 with one scale for 128 columns of a row, where a product cannot do it itself.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace culet::sm90 {

/// x, `n` columns of `m` rows at multiples of 16 bytes, becomes d and its scales. Requires: n a
/// multiple of 8.
struct QuantiseRowsParams {
  const float* x = nullptr;
  void* d = nullptr;
  float* scales = nullptr;
  std::int64_t ldx = 0, ldd = 0;  ///< elements
  int m = 0, n = 0;
  int scale_row = 0, scale_block = 0;  ///< elements between the scales of two rows, two groups
  int sms = 0;                         ///< the device's multiprocessors
};

/// Begins as soon as the kernel before lets it, and waits for that kernel's end.
cudaError_t LaunchQuantiseRows(const QuantiseRowsParams& params, cudaStream_t stream);

/// Loads the kernel on the current device; not during a capture.
cudaError_t LoadQuantiseRows();

}  // namespace culet::sm90
