// The Runtime of a CUDA device.
#pragma once

#include "gemm/runtime.h"

namespace culet {

/// The runtime of CUDA device `ordinal`, on its primary context; lives as long as the process.
/// Every call makes the device current and restores the caller's.
Runtime& CudaRuntime(int ordinal);

}  // namespace culet
