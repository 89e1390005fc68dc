// Quantisers from floating point to E4M3 with FP32 scales, on the host. docs/numerics.md defines
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

/// The same with one scale for each block of block x block elements: `scales`
/// (ceil(rows / block), ceil(cols / block)).
Status QuantizeBlocks(const void* source, const MatrixLayout& source_layout,  //
                      void* values, const MatrixLayout& values_layout,        //
                      float* scales, const MatrixLayout& scales_layout, int block = 128);

}  // namespace culet
