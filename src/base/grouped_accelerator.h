// The part of the seam between builds with CUDA and without that grouped products need; see
// base/accelerator.h.
#pragma once

#include "culet/device.h"
#include "culet/grouped.h"

namespace culet {

/// GroupedGemm of checked arguments with defaults filled in, while the device is current.
Status GroupedOnAccelerator(const DeviceInfo& device, const GroupedArgs& args, cudaStream_t stream);

}  // namespace culet
