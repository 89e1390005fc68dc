// A GPU as the tests of host code describe it, without one.
#pragma once

#include <cstddef>
#include <string>

#include "culet/device.h"

namespace culet {

/// An H200's figures under the compute capability `arch` (900 is 9.0).
inline DeviceInfo GpuInfo(int arch) {
  DeviceInfo device;
  device.name = "no GPU";
  device.device_class = "cuda/" + std::to_string(arch) + "/132sm/1980mhz/l2-60m/mem150g/4800gbps";
  device.arch = arch;
  device.ordinal = 0;
  device.units = 132;
  device.cache_bytes = std::size_t{60} << 20;
  device.memory_bytes = std::size_t{140} << 30;
  device.clock_mhz = 1980;
  device.memory_gbps = 4800;
  device.power_watts = 700;
  return device;
}

}  // namespace culet
