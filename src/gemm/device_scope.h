// An engine's device and its streams, in builds with and without CUDA.
#pragma once

#include <fmt/format.h>

#include "culet/problem.h"
#include "culet/status.h"
#ifdef CULET_WITH_CUDA
#include "cuda/scoped_device.h"
#endif

namespace culet {

#ifdef CULET_WITH_CUDA
using DeviceScope = ScopedDevice;
#else
class DeviceScope {
 public:
  explicit DeviceScope(int) noexcept {}
};
constexpr bool IsStreamOf(cudaStream_t, int) noexcept { return true; }
#endif

[[gnu::noinline, gnu::cold]] inline Status StreamOfAnother(int ordinal) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("stream is another device's, the engine's is cuda:{0}; launch on a "
                            "stream that was made while device {0} was current",
                            ordinal));
}

}  // namespace culet
