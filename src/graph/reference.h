// The operations on the host, in double or in FP32 (T): in double, the definition that every other
// dispatch is held against.
#pragma once

#include <vector>

#include "culet/kernel_dispatch.h"

namespace culet {

/// Y (m, n) = X (m, k) W^T + bias, all in T. X is quantised first when `quant_a` says so.
/// Requires: `x` of m * k and `y` of m * n elements.
template <class T>
void ReferenceProduct(const std::vector<T>& x, std::int64_t m, const Weight& weight,
                      const Weight& bias, const QuantDesc& quant_a, std::vector<T>& y);

/// Cosines and sines are computed in double and rounded to T.
template <class T>
void ReferenceRope(const RopeParams& params, int head_dim, std::int64_t rows, std::int64_t cols,
                   DevicePtr positions, DataType type, DevicePtr data);

template <class T>
void ReferenceAttention(const NodeLaunch& launch);

template <class T>
void ReferenceExperts(const NodeLaunch& launch);

}  // namespace culet
