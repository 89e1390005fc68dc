// The operations of the CPU dispatch: a row each, with a function that launches it.
#pragma once

#include <cstddef>
#include <memory>

#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"
#include "graph/cpu_experts.h"

namespace culet {

/// What products are planned with.
struct CpuPlanner {
  Gemm& gemm;
  Operation operation;
  ExpertChoices& choices;
};

struct CpuOperation {
  static constexpr std::size_t kAll = 100;

  Status (*launch)(const NodeLaunch& launch) = nullptr;
  // Inputs [first, last) are float32; others are indices and caches. So is the value, or any type.
  std::size_t first = 0, last = kAll;
  bool float_value = true;
  bool codes = false;  ///< or input 0 is E4M3
  /// Null: there is nothing to prepare.
  Result<std::unique_ptr<PreparedNode>> (*prepare)(const CpuPlanner& planner,
                                                   const ComputeGraph& graph,
                                                   const TensorNode& node) = nullptr;
  /// Bytes; null: none.
  std::size_t (*workspace)(const ComputeGraph& graph, const TensorNode& node,
                           const PreparedNode* prepared) = nullptr;
};

/// Null for what the dispatch does not have.
const CpuOperation* CpuOperationOf(TensorOp op) noexcept;

}  // namespace culet
