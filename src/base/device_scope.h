// An engine's device and its streams.
#pragma once

#include <fmt/format.h>

#include "base/accelerator.h"

namespace culet {

/// Makes a device current for a scope; a negative ordinal (the host) changes nothing. Two queries
/// of the calling thread's own state where the device is current already.
class DeviceScope {
 public:
  explicit DeviceScope(int ordinal) noexcept {
    if (ordinal >= 0) previous_ = EnterAccelerator(ordinal);
  }
  ~DeviceScope() {
    if (previous_ >= 0) LeaveAccelerator(previous_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = -1;  // to be restored; -1: nothing was changed
};

/// Whether a launch on `stream` runs on device `ordinal` while that is current. True on the host
/// and where it is unknown.
inline bool IsStreamOf(cudaStream_t stream, int ordinal) noexcept {
  return ordinal < 0 || stream == nullptr || IsStreamOfAccelerator(stream, ordinal);
}

[[gnu::noinline, gnu::cold]] inline Status StreamOfAnother(int ordinal) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("stream is another device's, the engine's is cuda:{0}; launch on a "
                            "stream that was made while device {0} was current",
                            ordinal));
}

}  // namespace culet
