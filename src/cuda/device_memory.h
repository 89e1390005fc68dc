// The DeviceMemory of a CUDA device.
#pragma once

#include "culet/device_memory.h"

namespace culet {

/// Memory of CUDA device `ordinal`; lives as long as the process. Large uploads go through pinned
/// memory, a piece being copied there by all threads while the one before is on its way. Every call
/// makes the device current and restores the caller's.
DeviceMemory& CudaMemory(int ordinal);

}  // namespace culet
