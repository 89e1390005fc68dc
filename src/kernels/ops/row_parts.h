// Parts of operations on a row, on the calling thread: what fused operations are made of.
#pragma once

#include <cstddef>
#include <cstdint>

namespace culet::ops {

/// What RmsNorm multiplies x with, besides gamma. With a `y` it is that of x + y, which is left in
/// `sum`; that may be x or y (rms_norm.cc).
float RowNormScale(const float* x, const float* y, float* sum, float epsilon, std::size_t width);

/// out = x * by * gamma (rms_norm.cc).
void ScaleElements(const float* x, const float* gamma, float by, float* out, std::size_t n);

/// (elementwise.cc)
void SwiGluElements(const float* gate, const float* up, float* out, std::size_t n);

}  // namespace culet::ops
