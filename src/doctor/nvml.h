// NVIDIA's management library (NVML): the driver and the GPUs without a CUDA context.
#pragma once

#include <string>

#include "culet/doctor.h"

namespace culet {

/// Asks `path`, or libnvidia-ml.so.1 where that is empty. A question that the library does not
/// know leaves its field unknown.
DriverState AskNvml(const std::string& path);

}  // namespace culet
