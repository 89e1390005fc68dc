// Routed experts of the graph on a GPU.
#pragma once

#include <memory>
#include <string>

#include "culet/kernel_dispatch.h"
#include "culet/tensor.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Ok, or the reason why no kernel takes a Route, an ExpertMulMat or a Combine.
Feasibility SupportsExperts(const ComputeGraph& graph, const TensorNode& node);

std::size_t RouteWorkspace(const TensorNode& node) noexcept;
Status LaunchRoute(const NodeLaunch& launch, LaunchStream stream);
Status LaunchCombine(const NodeLaunch& launch, LaunchStream stream);

/// An ExpertMulMat.
class PreparedExperts final : public PreparedNode {
 public:
  /// Lays out the experts' addresses on the device. Errors: as DeviceMemory::Allocate.
  static Result<std::unique_ptr<PreparedNode>> Create(DeviceMemory& memory,
                                                      const ComputeGraph& graph,
                                                      const TensorNode& node);

  std::string kernel() const override { return "cuda/expert_mul_mat"; }
  Status Launch(const NodeLaunch& launch, LaunchStream stream) const;

 private:
  DeviceBuffer weights_;
  ExpertProductArgs args_;  // but for what comes with a launch
};

}  // namespace culet::cuda_ops
