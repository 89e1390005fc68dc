#pragma once

#include <string>

#include "culet/device.h"

namespace culet {

/// DeviceInfo::device_class of a GPU, from its other fields: what decides its speed. Memory and
/// rates are rounded: boards of one class differ by what the driver keeps, and by a few megahertz.
std::string GpuClass(const DeviceInfo& device);

}  // namespace culet
