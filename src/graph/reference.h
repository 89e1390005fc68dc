// The operations in double, on the host: the definition that every other dispatch is held against.
#pragma once

#include <vector>

#include "culet/kernel_dispatch.h"

namespace culet {

/// Y (m, n) = X (m, k) W^T + bias, all in double. X is quantised first when `quant_a` says so.
/// Requires: `x` of m * k and `y` of m * n elements.
void ReferenceProduct(const std::vector<double>& x, std::int64_t m, const Weight& weight,
                      const Weight& bias, const QuantDesc& quant_a, std::vector<double>& y);

/// Each group of `quant_a.group_size` elements of a row becomes scale times what E4M3 holds of it.
void ReferenceQuantize(const QuantDesc& quant_a, std::int64_t rows, std::int64_t cols,
                       std::vector<double>& x);

void ReferenceRope(const RopeParams& params, int head_dim, std::int64_t rows, std::int64_t cols,
                   DevicePtr positions, DataType type, DevicePtr data);

void ReferenceAttention(const NodeLaunch& launch);

void ReferenceExperts(const NodeLaunch& launch);

}  // namespace culet
