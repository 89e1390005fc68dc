// Small kernels that measuring needs: a pause, a scan of an output, the device's own ceilings.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "gemm/runtime.h"

namespace culet {

/// Keeps the stream busy for about `nanoseconds`, so that the host can enqueue what follows.
cudaError_t LaunchPause(unsigned nanoseconds, cudaStream_t stream);

/// Adds the unwritten elements to counters[0] and the changed guard bytes to counters[1].
/// Requires: data, pitch_bytes and line_bytes are multiples of element_bytes.
cudaError_t LaunchScan(const OutputLines& lines, const void* found, const void* pristine,
                       unsigned long long* counters, cudaStream_t stream);

/// Copies `count` elements of `element_bytes` (1, 2 or 4) from base + offsets[i] to to[i], all in
/// the device's memory and aligned to the element.
cudaError_t LaunchGather(const void* base, const std::size_t* offsets, std::size_t count,
                         std::size_t element_bytes, void* to, cudaStream_t stream);

/// Reads `bytes` (a multiple of 16) once with all multiprocessors; the sum goes to `sink`, so that
/// no load is left out.
cudaError_t LaunchRead(const void* data, std::size_t bytes, int multiprocessors, unsigned* sink,
                       cudaStream_t stream);

/// One block a multiprocessor: FP8 products of operands that lie in shared memory, `rounds` times
/// kTensorRateOperations a block. Compute capability 9.0 alone. `sink` has room for a float.
inline constexpr double kTensorRateOperations = 2.0 * 128 * 256 * 512;
cudaError_t LaunchTensorRate(int rounds, int multiprocessors, float* sink, cudaStream_t stream);

}  // namespace culet
