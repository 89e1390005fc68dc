// The operations of the CUDA dispatch: a row each, with a function that launches it.
#pragma once

#include <cstddef>
#include <memory>

#include "culet/dispatch.h"
#include "culet/kernel_dispatch.h"
#include "graph/cuda/fusions.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// What nodes are prepared with, on the device that is the current one.
struct CudaPlanner {
  Gemm& gemm;
  DeviceMemory& memory;
  const CudaDispatchOptions& options;
  RopeTables& rope;
};

struct CudaOperation {
  Status (*launch)(const NodeLaunch& launch, LaunchStream stream) = nullptr;
  /// Null: the value and input 0 must be float32 or bfloat16, and nothing else.
  Feasibility (*supports)(const ComputeGraph& graph, const TensorNode& node) = nullptr;
  /// Null: there is nothing to prepare.
  Result<std::unique_ptr<PreparedNode>> (*prepare)(const CudaPlanner& planner,
                                                   const ComputeGraph& graph, int id) = nullptr;
  /// Bytes; null: none.
  std::size_t (*workspace)(const ComputeGraph& graph, const TensorNode& node,
                           const PreparedNode* prepared) = nullptr;
};

/// Null for what the dispatch does not have.
const CudaOperation* CudaOperationOf(TensorOp op) noexcept;

/// Whether the row's operation takes the node.
Feasibility Supports(const CudaOperation& operation, const ComputeGraph& graph,
                     const TensorNode& node);

}  // namespace culet::cuda_ops
