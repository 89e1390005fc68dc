// What the CUDA dispatch prepares for nodes that are no products, once a graph.
#pragma once

#include <cstddef>
#include <string>

#include "graph/cuda/attention.h"
#include "graph/cuda/dispatch.h"
#include "graph/cuda/read_next.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

struct PreparedRope final : PreparedNode {
  const double* turns = nullptr;
  std::string kernel() const override { return "cuda/rope"; }
};

struct PreparedAttention final : PreparedNode {
  AttentionPlan plan;
  bool early = false;
  std::size_t state_bytes() const override { return plan.state_bytes; }
  std::string kernel() const override {
    if (plan.latent) return NameOfLatent(plan);
    if (!plan.tensor_cores) return "cuda/attention" + NameOfSplits(plan.lanes);
    std::string name = "cuda/attention";
    if (plan.has_decode) name += "/" + NameOfDecode(plan);
    if (plan.has_tiles) name += (plan.wgmma ? "/wgmma" : "/tiles") + NameOfSplits(plan.tiles);
    return name;
  }
};

struct PreparedQuantize final : PreparedNode {
  explicit PreparedQuantize(const ReadNext& n) : next(n) {}
  ReadNext next;
  std::string kernel() const override {
    return std::string("cuda/") + ToString(TensorOp::kQuantize);
  }
};

// Operations that need nothing but a name.
struct PreparedPlain final : PreparedNode {
  explicit PreparedPlain(TensorOp o) : op(o) {}
  TensorOp op;
  std::string kernel() const override { return std::string("cuda/") + ToString(op); }
};

}  // namespace culet::cuda_ops
