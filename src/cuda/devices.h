// The CUDA devices of the machine.
#pragma once

#include <vector>

#include "culet/device.h"
#include "culet/status.h"

namespace culet {

/// Appends every CUDA device. Errors: NOT_FOUND when there is no driver or no device, with the
/// driver's own words; FAILED_PRECONDITION when the driver is older than the runtime.
Status AppendCudaDevices(std::vector<DeviceInfo>& devices);

/// MeasureRates for a CUDA device.
Result<HardwareRates> MeasureCudaRates(const DeviceInfo& device, DataType type);

}  // namespace culet
