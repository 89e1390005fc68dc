// Quantises BF16 activations to E4M3 with one FP32 scale for each 128 of a row, on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "base/accelerator.h"

namespace culet {

/// args.source (rows, k) BF16 row-major; `values` the same in E4M3; scale of (row, group) at
/// row * scale_row + group * scale_group, so row-major (k/128, 1) and column-major (1, rows) alike.
/// Any alignment, pitch and k; 16-byte aligned rows are several times faster.
///
/// value = RNE_e4m3(x / scale), scale = amax / 448 in FP32; a group of zeros gets scale 1, one with
/// a NaN or an infinity gets NaN as scale and values. `pdl`: launched as a programmatic dependent;
/// it waits for the preceding kernel before its first read. Async on `stream`; returns the launch's
/// own error.
cudaError_t LaunchQuantizeE4m3(const QuantizeE4m3Args& args, bool pdl, cudaStream_t stream);

}  // namespace culet
