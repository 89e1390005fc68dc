// A GPU as the tests of host code describe it, without one.
#pragma once

#include <cstddef>

#include "base/gpu_class.h"
#include "culet/device.h"

namespace culet {

/// An H200's figures under the compute capability `arch` (900 is 9.0).
inline DeviceInfo GpuInfo(int arch) {
  DeviceInfo device;
  device.name = "no GPU";
  device.arch = arch;
  device.ordinal = 0;
  device.units = 132;
  device.cache_bytes = std::size_t{60} << 20;
  device.memory_bytes = std::size_t{140} << 30;
  device.clock_mhz = 1980;
  device.memory_gbps = 4800;
  device.power_watts = 700;
  device.device_class = GpuClass(device);
  return device;
}

}  // namespace culet
