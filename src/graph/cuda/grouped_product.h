// Grouped products of the public API on a GPU (culet/grouped.h).
#pragma once

#include "culet/device.h"
#include "culet/grouped.h"

namespace culet::cuda_ops {

/// As GroupedOnAccelerator (base/grouped_accelerator.h).
Status LaunchGrouped(const DeviceInfo& device, const GroupedArgs& args, cudaStream_t stream);

}  // namespace culet::cuda_ops
