// Routed experts of the graph on a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "culet/kernel_dispatch.h"
#include "culet/tensor.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

class PreparedExperts final : public PreparedNode {
 public:
  /// Lays out the experts' addresses on the device. Errors: as DeviceMemory::Allocate.
  static Result<std::unique_ptr<PreparedNode>> Create(DeviceMemory& memory,
                                                      const ComputeGraph& graph, int id);
  /// Ok, or the reason why no kernel takes it.
  static Feasibility Supports(const TensorNode& node);

  std::string kernel() const override { return "cuda/experts"; }
  std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }
  Status Launch(DevicePtr input, DevicePtr router_logits, DevicePtr output, DevicePtr workspace,
                LaunchStream stream) const;

 private:
  DeviceBuffer pointers_;
  ExpertsArgs args_;  // but for what comes with a launch
  DataType input_type_ = DataType::kNull, logits_type_ = DataType::kNull;
  int count_ = 0;
  bool renormalize_ = false;
  // Where the parts of the workspace begin.
  std::size_t shares_ = 0, x_ = 0, x_scales_ = 0, inner_ = 0, codes_ = 0, codes_scales_ = 0;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace culet::cuda_ops
