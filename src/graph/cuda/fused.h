// What the search for fusions and their launches share.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "graph/cuda/fusions.h"
#include "graph/cuda/product.h"

namespace culet::cuda_ops {

inline constexpr const char* kQkv = "qkv";
inline constexpr const char* kQkvAttention = "qkv_attention";
inline constexpr const char* kGateUp = "gate_up";
inline constexpr const char* kExpertsGateUp = "experts_gate_up";
inline constexpr const char* kRouter = "router";
inline constexpr const char* kGateUpQuantize = "gate_up_quantize";
inline constexpr const char* kAddRmsNormOfRows = "add_gather_rms_norm";
inline constexpr const char* kAddRmsNorm = "add_rms_norm";
inline constexpr const char* kAddRmsNormQuantize = "add_rms_norm_quantize";
inline constexpr const char* kRmsNormQuantize = "rms_norm_quantize";
inline constexpr const char* kSwiGluQuantize = "swiglu_quantize";

/// The nodes of kQkv and kQkvAttention; -1: there is none.
struct Heads {
  int q = -1, k = -1, v = -1, q_norm = -1, k_norm = -1, q_rope = -1, k_rope = -1;
  int key_write = -1, value_write = -1, attention = -1;
  std::array<int, 3> Products() const { return {q, k, v}; }
  std::vector<int> Nodes() const;
};

/// The product that computes all `products` side by side; they share one input and one type. Its
/// weight is not present() if their weights or biases are not contiguous.
ProductSpec JoinedProduct(const ComputeGraph& graph, std::span<const int> products);

}  // namespace culet::cuda_ops
