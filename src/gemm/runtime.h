// Runtime: memory and time on one device, so that tuning, benchmarks and tests are written once.
#pragma once

#include <cstddef>
#include <functional>

#include "culet/device.h"
#include "culet/status.h"

namespace culet {

class Runtime {
 public:
  virtual ~Runtime() = default;

  /// At least `bytes` of device memory aligned to 256 bytes. Errors: RESOURCE_EXHAUSTED.
  virtual Result<void*> Allocate(std::size_t bytes) = 0;
  virtual void Free(void* pointer) noexcept = 0;

  /// Copies that are complete on return.
  virtual Status ToDevice(void* device, const void* host, std::size_t bytes) = 0;
  virtual Status ToHost(void* host, const void* device, std::size_t bytes) = 0;

  /// Waits for all work, and returns the device's pending error as a Status.
  virtual Status Synchronize() = 0;

  /// Microseconds of one call of `launch`, on the device's own clock where it has one.
  virtual Result<double> TimeUs(const std::function<Status()>& launch) = 0;
};

/// The runtime of a device; lives as long as the process.
Runtime& GetRuntime(const DeviceInfo& device);

}  // namespace culet
