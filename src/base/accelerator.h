// The one seam between builds with CUDA and without: src/cuda/accelerator.cc implements it in the
// former, src/no_cuda/accelerator.cc in the latter, and no other code asks which of them it is in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "culet/device.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet {

class Runtime;
struct TraceHooks;

/// Whether this build has CUDA parts.
bool HasCudaParts() noexcept;

/// Appends every accelerator. Errors: NOT_FOUND when there is no driver or no device, with the
/// driver's own words; FAILED_PRECONDITION when the driver is too old; UNSUPPORTED in a build
/// without CUDA.
Status AppendAccelerators(std::vector<DeviceInfo>& devices);

/// MeasureRates for an accelerator.
Result<HardwareRates> MeasureAcceleratorRates(const DeviceInfo& device, DataType type);

/// The runtime of an accelerator; lives as long as the process. Null in a build without CUDA, where
/// no device is one.
Runtime* AcceleratorRuntime(const DeviceInfo& device);

/// Whether `pointer` is memory of an accelerator. Starts no driver: false where the process uses
/// none.
bool IsAcceleratorMemory(const void* pointer) noexcept;

/// Zeroes such memory, asynchronously on `stream`.
Status ZeroAcceleratorMemory(void* pointer, std::size_t bytes, cudaStream_t stream);

/// Whether `stream` is recording a graph, in which nothing may allocate or wait.
bool IsCapturing(cudaStream_t stream) noexcept;

/// The number of the capture that `stream` is recording into, which no other capture of the process
/// has; 0 when it records nothing.
std::uint64_t CaptureId(cudaStream_t stream) noexcept;

/// Makes accelerator `ordinal` current. Returns what was before, or -1 where nothing was changed.
int EnterAccelerator(int ordinal) noexcept;
void LeaveAccelerator(int previous) noexcept;

/// Whether a launch on `stream` runs on accelerator `ordinal` while that is current.
bool IsStreamOfAccelerator(cudaStream_t stream, int ordinal) noexcept;

/// Where ranges of this build go: NVTX; null where it was built without.
const TraceHooks* AcceleratorTraceHooks() noexcept;

/// Rows of BF16 to be quantised to E4M3 with a scale for each 128 of a row, on an accelerator.
struct QuantizeE4m3Args {
  const void* source = nullptr;
  std::int64_t source_ld = 0;  ///< elements
  void* values = nullptr;
  std::int64_t values_ld = 0;
  float* scales = nullptr;  ///< of (row, group): at row * scale_row + group * scale_group
  std::int64_t scale_row = 0;
  std::int64_t scale_group = 0;
  int rows = 0;
  int k = 0;
};
Status QuantizeRowsE4m3(const QuantizeE4m3Args& args, bool pdl, cudaStream_t stream);

}  // namespace culet
