#include "kernels/sm90/times/times.h"

#include <algorithm>
#include <iterator>

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

double FilledShare(int cluster_size) {
  // On five H200s all launches below these shares ran as one wave, and all 3 % above as two.
  constexpr double kFilled[] = {1, 1, 1, 0.885, 0.94, 0.85, 0.79, 0.86, 0.94};
  return cluster_size < static_cast<int>(std::size(kFilled)) ? kFilled[cluster_size] : 0.85;
}

}  // namespace culet::sm90
