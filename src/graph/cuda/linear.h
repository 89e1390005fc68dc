// Linear attention on the CUDA dispatch.
#pragma once

#include "culet/kernel_dispatch.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Of a verified CausalConv or GatedDelta.
Feasibility SupportsLinear(const ComputeGraph& graph, const TensorNode& node);

/// Launches a HeadSlice, CausalConv or GatedDelta.
Status LaunchLinear(const NodeLaunch& launch, LaunchStream stream);

}  // namespace culet::cuda_ops
