// Bytes of weights.
#pragma once

#include "culet/tensor.h"

namespace culet {

/// Elements and scales; 0 for an absent weight.
double BytesOf(const Weight& weight) noexcept;
double BytesOf(const ExpertWeights& expert) noexcept;

}  // namespace culet
