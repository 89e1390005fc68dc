// Runtime: measurements on one device, so that tuning, benchmarks and tests are written once. Its
// memory is a DeviceMemory, as a graph's is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "culet/device.h"
#include "culet/device_memory.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// Launches that were recorded once, to be repeated as one piece.
class Replay {
 public:
  virtual ~Replay() = default;
  /// Microseconds that all of them take one after another, on the device's own clock where it has
  /// one: the mean of `times` repetitions. Waits for earlier work first. Errors: what a launch
  /// returns, or the device's own.
  virtual Result<double> TimeUs(int times = 1) = 0;
};

/// An output region and its guard zones: `bytes` from a start, in which line i holds `line_bytes`
/// at data + i * pitch_bytes. All else is guard.
struct OutputLines {
  std::size_t bytes = 0;
  std::size_t data = 0;
  std::size_t lines = 0;
  std::size_t line_bytes = 0;
  std::size_t pitch_bytes = 0;
  std::size_t element_bytes = 0;  ///< 1, 2 or 4
  std::uint32_t poison = 0;       ///< its low bytes fill an element that was not written
};

/// The result of scanning a region.
struct OutputScan {
  std::size_t unwritten = 0;  ///< elements that hold the poison
  bool guards_intact = true;
};

class Runtime {
 public:
  virtual ~Runtime() = default;

  /// The device's memory; lives as long as the process. Measurements use the null stream.
  virtual DeviceMemory& memory() noexcept = 0;

  /// Looks at an output in the device's memory; `pristine` is the region, in the device's memory
  /// too, as it was before the launch.
  virtual Result<OutputScan> Scan(const OutputLines& lines, const void* found,
                                  const void* pristine) = 0;

  /// Copies elements of `element_bytes` (1, 2 or 4) from base + each of `offsets`, in the device's
  /// memory, side by side to `to` on the host.
  virtual Status Gather(const void* base, std::span<const std::size_t> offsets,
                        std::size_t element_bytes, void* to) = 0;

  /// Waits for all work of all streams, and returns the device's pending error as a Status.
  virtual Status Synchronize() = 0;

  /// Microseconds of one call of `launch`, on the device's own clock where it has one. `give_up`
  /// (may be null) is asked while products of other threads are waited for; true ends that with
  /// FAILED_PRECONDITION.
  virtual Result<double> TimeUs(const std::function<Status()>& launch,
                                const std::function<bool()>& give_up = nullptr) = 0;

  /// Records what `launches` puts on the given stream. On a GPU that is a CUDA graph: `launches`
  /// runs now and must neither wait nor allocate. On the host it runs at each replay. Errors: what
  /// `launches` returns; FAILED_PRECONDITION when it recorded nothing.
  virtual Result<std::unique_ptr<Replay>> Record(
      const std::function<Status(cudaStream_t)>& launches) = 0;
};

/// The runtime of a device; lives as long as the process.
Runtime& GetRuntime(const DeviceInfo& device);

}  // namespace culet
