// Launches captured as a CUDA graph.
#pragma once

#include <memory>

#include "culet/kernel_dispatch.h"

namespace culet {

/// Captures what `launches` launches on CUDA device `ordinal`, and makes it ready for replays.
/// Errors: what `launches` returns; FAILED_PRECONDITION when nothing was launched on the stream
/// given; INTERNAL when CUDA refuses, as for a launch that allocates or waits; RESOURCE_EXHAUSTED.
Result<std::unique_ptr<RecordedLaunches>> CaptureLaunches(int ordinal,
                                                          const LaunchFunction& launches);

}  // namespace culet
