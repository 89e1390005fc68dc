// How plain and fused skinny kernels are launched: threads (32, warps along K, groups of rows).
#pragma once

#include "kernels/sm90/launch.h"

namespace culet::sm90 {

/// `Launch`: SkinnyLaunch or FusedSkinnyLaunch.
template <class Launch>
cudaError_t LaunchWarps(const Launch& launch, cudaStream_t stream) {
  return LaunchKernel(launch.Function(),
                      {.grid = dim3(static_cast<unsigned>(launch.ctas)),
                       .block = dim3(32, static_cast<unsigned>(launch.splits),
                                     static_cast<unsigned>(launch.row_groups)),
                       .smem_bytes = launch.smem_bytes,
                       .pdl = launch.params.early_weights != 0},
                      &launch.params, stream);
}

}  // namespace culet::sm90
