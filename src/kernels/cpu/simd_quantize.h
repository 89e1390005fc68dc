// E4M3 with a scale for each group, as docs/numerics.md defines it, in vectors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "culet/problem.h"

namespace culet {

/// The largest magnitude of `count` elements of float32, float16 or bfloat16; NaN when one of them
/// is not finite.
float LargestMagnitude(const void* x, DataType type, std::size_t count);

/// Codes of x / scale, one FP32 division and one rounding each.
void EncodeE4m3(const void* x, DataType type, float scale, std::size_t count, std::uint8_t* codes);

/// Both, of one group. Returns its scale.
float QuantizeGroupOf(const float* x, std::size_t count, std::uint8_t* codes);

/// Rows [first, first + rows) of a D that the epilogue quantises, and their scales. `values`: those
/// rows as FP32, packed. At most `threads` work.
void QuantizeRowsOfD(const GemmArgs& args, std::int64_t first, int rows, const float* values,
                     int threads);

}  // namespace culet
