#include "kernels/sm90/times.h"

#include <algorithm>

namespace culet::sm90 {

Chip ChipOf(const DeviceInfo& device, const HardwareRates& rates, int sm_budget) {
  const Chip h200;
  const int sms = std::max(1, device.units);
  Chip chip;
  chip.sms = sm_budget > 0 ? std::min(sm_budget, sms) : sms;
  if (device.clock_mhz > 0) chip.clock_mhz = device.clock_mhz;
  chip.power_watts =
      device.power_watts > 0 ? device.power_watts : h200.power_watts * sms / h200.sms;
  chip.read_gbps = std::max(1.0, rates.read_gbps);
  return chip;
}

}  // namespace culet::sm90
