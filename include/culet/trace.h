// Named ranges for profilers: each launch with its kernel, in NVIDIA Nsight Systems.
#pragma once

#include "culet/status.h"

namespace culet {

/// Switches NVTX ranges of the whole process on or off: one around each launch of a plan, named by
/// its kernel and sizes, and one around each node of a graph and each replay of a recorded one. Off
/// at first, unless the environment's CULET_NVTX is 1; a launch then costs one load more.
/// Errors: UNSUPPORTED where the library was built without NVTX (the CUDA toolkit's header).
Status SetTracing(bool on);

}  // namespace culet
