// Linear attention of the CPU dispatch.
#pragma once

#include <string>
#include <vector>

#include "culet/kernel_dispatch.h"

namespace culet {

/// A CausalConv's weight, or a GatedDelta's decays and bias, in FP32.
class PreparedLinear final : public PreparedNode {
 public:
  explicit PreparedLinear(const TensorNode& node);
  std::string kernel() const override { return std::string("cpu/") + ToString(op_); }
  void Launch(const NodeLaunch& launch) const;
  /// Bytes of a GatedDelta.
  static std::size_t Workspace(const ComputeGraph& graph, const TensorNode& node);

 private:
  TensorOp op_;
  std::vector<float> weight_, decays_, bias_;
};

}  // namespace culet
