// A kernel's start from its typed argument, which a test on the CPU has in its own way.
#pragma once

#include "kernels/sm90/product/launch.h"

namespace culet::sm90 {

template <class Params>
cudaError_t StartKernel(const void* function, const LaunchShape& shape, const Params& params,
                        cudaStream_t stream) {
  return LaunchKernel(function, shape, &params, stream);
}

}  // namespace culet::sm90
