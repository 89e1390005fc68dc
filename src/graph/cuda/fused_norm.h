// The norm of a fusion, with the sum and the rows before it and the codes behind it.
#pragma once

#include "culet/fusion.h"
#include "culet/kernel_dispatch.h"
#include "culet/tensor.h"
#include "kernels/cuda_ops/fused.h"

namespace culet::cuda_ops {

/// The first of a fusion's nodes with this operation; -1: there is none.
int FirstOf(const ComputeGraph& graph, const Fusion& fusion, TensorOp op);

class NormOfFusion {
 public:
  NormOfFusion(const ComputeGraph& graph, const Fusion& fusion);
  bool present() const noexcept { return norm_ >= 0; }
  /// Requires: present. What gets no memory is null.
  FusedNormArgs Args(const NodeLaunch& launch) const;

 private:
  int sum_, norm_, rows_, codes_;  // -1: there is none
};

}  // namespace culet::cuda_ops
