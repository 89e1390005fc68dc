// Quantisers from floating point to E4M3 with FP32 scales, on the host and on a GPU. docs/numerics.md defines
// them exactly: amax over the group / 448, division, round to nearest even; an all-zero group gets
// scale 1.
#pragma once

#include "culet/problem.h"
#include "culet/status.h"

namespace culet {

/// Quantises `source` (rows x cols; F32, F16 or BF16) to `values` (E4M3, same shape) with one FP32
/// scale for each group along a row: `scales` (rows, ceil(cols / group)). The last group may be
/// partial. All layouts may be in either order and strided.
/// Numerics: scale = amax / 448 in FP32, value = RNE_e4m3(x / scale), |value| <= 448. An all-zero
/// group gets scale 1; one so small that amax / 448 rounds to zero the scale 2^-149; one that holds
/// a NaN or an infinity gets NaN as scale and values.
/// Errors: INVALID_ARGUMENT for null, misaligned or overlapping pointers, wrong types, shapes or ld,
/// OUT_OF_RANGE for more bytes than there are addresses; nothing is written then.
Status QuantizeGroups(const void* source, const MatrixLayout& source_layout,  //
                      void* values, const MatrixLayout& values_layout,        //
                      float* scales, const MatrixLayout& scales_layout, int group = 128);

/// QuantizeGroups with groups of 128 on a GPU: all pointers are memory of the current device, the
/// source is BF16, source and values are row-major; the scales' layout (rows, ceil(cols / 128)) may
/// be in either order, so that U comes out as a product takes it. Any alignment, ld and cols; rows
/// aligned to 16 bytes are several times faster. `pdl` launches it as a programmatic dependent: it
/// waits for the kernel before, ahead of its first read.
/// Async: on `stream`, which may record a graph; nothing is allocated.
/// Errors: as QuantizeGroups; INVALID_ARGUMENT for another type or order, UNSUPPORTED in a build
/// without CUDA, INTERNAL with CUDA's words when the launch fails.
Status QuantizeGroupsCuda(const void* source, const MatrixLayout& source_layout,  //
                          void* values, const MatrixLayout& values_layout,        //
                          float* scales, const MatrixLayout& scales_layout,
                          cudaStream_t stream = nullptr, bool pdl = false);

/// QuantizeGroups with one scale for each block of block x block elements: `scales`
/// (ceil(rows / block), ceil(cols / block)).
Status QuantizeBlocks(const void* source, const MatrixLayout& source_layout,  //
                      void* values, const MatrixLayout& values_layout,        //
                      float* scales, const MatrixLayout& scales_layout, int block = 128);

}  // namespace culet
