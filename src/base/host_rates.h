// MeasureHostRates with what it asks of the machine given.
#pragma once

#include <cstddef>
#include <functional>

#include "culet/device.h"
#include "culet/status.h"

namespace culet {

struct HostRatesInputs {
  std::function<double()> clock_s;  ///< seconds; looked at before and after each sample
  std::size_t cache_bytes = 0;      ///< the last-level cache, which the data must exceed
  std::size_t free_bytes = 0;       ///< memory, of which half may be used
};

/// Errors: as MeasureHostRates.
Result<HardwareRates> MeasureHostRates(const HostRatesInputs& inputs);

}  // namespace culet
