#include "base/gpu_class.h"

#include <fmt/format.h>

#include <cmath>

namespace culet {

std::string GpuClass(const DeviceInfo& device) {
  const auto rounded = [](double value, double step) { return std::round(value / step) * step; };
  return fmt::format("cuda/{}/{}sm/{:.0f}mhz/l2-{}m/mem{:.0f}g/{:.0f}gbps", device.arch,
                     device.units, rounded(device.clock_mhz, 10), device.cache_bytes >> 20,
                     rounded(static_cast<double>(device.memory_bytes) / 1e9, 10),
                     rounded(device.memory_gbps, 100));
}

}  // namespace culet
