// Linear attention on the CUDA dispatch.
#pragma once

#include <cstddef>
#include <string>

#include "culet/kernel_dispatch.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Of a verified CausalConv or GatedDelta.
Feasibility SupportsLinear(const ComputeGraph& graph, const TensorNode& node);

/// A GatedDelta, in chunks where its sequences may have enough tokens. Needs the device to be the
/// current one.
class PreparedDelta final : public PreparedNode {
 public:
  PreparedDelta(const ComputeGraph& graph, const TensorNode& node);
  std::string kernel() const override {
    return workspace_bytes_ > 0 ? "cuda/gated_delta/chunks" : "cuda/gated_delta";
  }
  std::size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  std::size_t workspace_bytes_ = 0;
};

Status LaunchHeadSlice(const NodeLaunch& launch, LaunchStream stream);
Status LaunchCausalConv(const NodeLaunch& launch, LaunchStream stream);
Status LaunchGatedDelta(const NodeLaunch& launch, LaunchStream stream);

}  // namespace culet::cuda_ops
