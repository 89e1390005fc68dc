// The operations on the host in double: the definition that every other dispatch is held against.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "culet/kernel_dispatch.h"

namespace culet {

/// The sum of a[i] b[i], in the order of i.
inline double Dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

inline double Silu(double x) { return x / (1 + std::exp(-x)); }

/// Y (m, n) = X (m, k) W^T + bias. X is quantised first when `quant_a` says so, with the scale
/// `given` where that is above 0. Requires: `x` of m * k and `y` of m * n elements.
void ReferenceProduct(const std::vector<double>& x, std::int64_t m, const Weight& weight,
                      const Weight& bias, const QuantDesc& quant_a, std::vector<double>& y,
                      float given = 0);

/// The first input of a product, row by row; codes times the scales that are its second.
std::vector<double> ReferenceInput(const NodeLaunch& launch);

/// Rounds the groups of each row to scale times an E4M3 value. Stores `codes` and `scales`, packed,
/// if they are there. `given`: the scale of all, if above 0.
void ReferenceQuantize(const QuantDesc& quant_a, std::int64_t rows, std::int64_t cols,
                       std::vector<double>& x, std::uint8_t* codes = nullptr,
                       float* scales = nullptr, float given = 0);

// The operations, each a column of operations.cc.
void ReferenceMulMat(const NodeLaunch& launch);
void ReferenceExpertProduct(const NodeLaunch& launch);
void ReferenceHeadMulMat(const NodeLaunch& launch);
void ReferenceQuantizeNode(const NodeLaunch& launch);
void ReferenceRope(const NodeLaunch& launch);  ///< in place, at the output
void ReferenceAttention(const NodeLaunch& launch);
void ReferenceRoute(const NodeLaunch& launch);
void ReferenceCombine(const NodeLaunch& launch);
void ReferenceHeadSlice(const NodeLaunch& launch);
void ReferenceCausalConv(const NodeLaunch& launch);
void ReferenceGatedDelta(const NodeLaunch& launch);
void ReferenceSample(const NodeLaunch& launch);

// Element by element (reference_elements.cc).
void ReferenceAdd(const NodeLaunch& launch);
void ReferenceMul(const NodeLaunch& launch);
void ReferenceSilu(const NodeLaunch& launch);
void ReferenceSwiGlu(const NodeLaunch& launch);
void ReferenceGeGlu(const NodeLaunch& launch);
void ReferenceClampedSwiGlu(const NodeLaunch& launch);
void ReferenceSigmoidGate(const NodeLaunch& launch);
void ReferenceScale(const NodeLaunch& launch);
void ReferenceSoftCap(const NodeLaunch& launch);
void ReferenceCast(const NodeLaunch& launch);
void ReferenceCopy(const NodeLaunch& launch);

// Row by row (reference_rows.cc).
void ReferenceRmsNorm(const NodeLaunch& launch);
void ReferenceLayerNorm(const NodeLaunch& launch);
void ReferencePositionScale(const NodeLaunch& launch);
void ReferenceEmbedding(const NodeLaunch& launch);
void ReferenceGatherRows(const NodeLaunch& launch);
void ReferenceKvWrite(const NodeLaunch& launch);
void ReferenceArgMax(const NodeLaunch& launch);
void ReferenceAllArgMax(const NodeLaunch& launch);

}  // namespace culet
