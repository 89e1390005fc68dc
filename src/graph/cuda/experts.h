// Routed experts of the graph on a GPU.
#pragma once

#include <memory>
#include <string>

#include "culet/kernel_dispatch.h"
#include "culet/tensor.h"
#include "graph/cuda/fusions.h"
#include "graph/cuda/grouped_experts.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Ok, or the reason why no kernel takes a Route, an ExpertMulMat or a Combine.
Feasibility SupportsExperts(const ComputeGraph& graph, const TensorNode& node);

std::size_t RouteWorkspace(const TensorNode& node) noexcept;
/// Of the Route with id `route`, whose values go to these places: but for logits and ids.
RouteArgs ArgsOfRoute(const ComputeGraph& graph, int route, DevicePtr shares, DevicePtr routes);
Status LaunchRoute(const NodeLaunch& launch, LaunchStream stream);
Status LaunchCombine(const NodeLaunch& launch, LaunchStream stream);

/// An ExpertMulMat.
class PreparedExperts final : public PreparedNode {
 public:
  /// Chooses a kernel, and lays out the experts' addresses on the device. Errors: as
  /// DeviceMemory::Allocate.
  static Result<std::unique_ptr<PreparedNode>> Create(Gemm& gemm, DeviceMemory& memory,
                                                      const CudaDispatchOptions& options,
                                                      const ComputeGraph& graph, int id);

  bool is_grouped() const noexcept { return grouped_ != nullptr; }
  std::string kernel() const override {
    return grouped_ != nullptr ? grouped_->kernel() : "cuda/expert_mul_mat";
  }
  std::size_t workspace_bytes() const noexcept {
    return grouped_ != nullptr ? grouped_->workspace_bytes() : 0;
  }
  Status Launch(const NodeLaunch& launch, LaunchStream stream) const;

 private:
  std::unique_ptr<GroupedExperts> grouped_;  // null: a warp a row
  DeviceBuffer weights_;
  ExpertProductArgs args_;  // but for what comes with a launch
};

/// Gate, up and their activation as one grouped product.
class PreparedGatedExperts final : public PreparedFusion {
 public:
  /// Requires: a fusion that FindFusions found. Errors: as DeviceMemory::Allocate; UNSUPPORTED
  /// where no grouped kernel takes it.
  static Result<std::unique_ptr<PreparedFusion>> Create(Gemm& gemm, DeviceMemory& memory,
                                                        const CudaDispatchOptions& options,
                                                        const ComputeGraph& graph,
                                                        const Fusion& fusion);

  std::string kernel() const override { return grouped_->kernel(); }
  std::size_t workspace_bytes() const override { return grouped_->workspace_bytes(); }
  Status Launch(const NodeLaunch& launch, LaunchStream stream) const override;

 private:
  std::unique_ptr<GroupedExperts> grouped_;
  ExpertInputs inputs_;
};

}  // namespace culet::cuda_ops
