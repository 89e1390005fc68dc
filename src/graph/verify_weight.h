// What ComputeGraph::Verify demands of the weights of products. Each function returns the reason
// for a refusal; empty is fine.
#pragma once

#include <cstdint>
#include <string>

#include "culet/tensor.h"

namespace culet {

constexpr bool IsFloat(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

/// Of the address alone.
std::string WhyNotPlaced(const char* what, const Weight& weight);

/// Of the weight (n, k) of a product whose input is quantised as `params` say.
std::string WhyNotWeight(const char* what, const Weight& weight, std::int64_t n, std::int64_t k,
                         const OpParams& params);

/// Of the scalar of what quantises: 0, or the scale of all rows.
std::string WhyNotScale(const OpParams& params);

}  // namespace culet
