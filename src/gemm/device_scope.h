// Makes an engine's device current for a scope, in builds with and without CUDA.
#pragma once

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
#endif

}  // namespace culet
