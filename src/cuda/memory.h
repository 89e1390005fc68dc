// The host side of CUDA memory. Compiled only into builds with CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// Whether `pointer` is memory of a CUDA device (managed memory included). False where no driver
/// is present.
bool IsCudaMemory(const void* pointer) noexcept;

/// Zeroes CUDA memory, asynchronously on `stream`.
Status ZeroCudaMemory(void* pointer, std::size_t bytes, cudaStream_t stream);

/// Whether `stream` is recording a graph, in which nothing may allocate or wait.
bool IsCapturing(cudaStream_t stream) noexcept;

/// The number of the capture that `stream` is recording into, which no other capture of the process
/// has; 0 when it records nothing.
std::uint64_t CaptureId(cudaStream_t stream) noexcept;

}  // namespace culet
