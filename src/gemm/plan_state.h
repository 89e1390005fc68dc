// What a GemmPlan holds.
#pragma once

#include <memory>

#include "culet/desc.h"
#include "culet/kernel.h"
#include "gemm/extent.h"

namespace culet {

struct PlanState {
  GemmDesc desc;
  LaunchSpec spec;
  WorkspaceSize workspace_size;
  std::unique_ptr<PreparedKernel> prepared;
  const void* B = nullptr;
  const void* V = nullptr;
  const void* bias = nullptr;
  Footprint a, u, b, v, c, d, bias_footprint;
  int ordinal = -1;         ///< of the plan's CUDA device; -1: the host
  bool c_may_be_d = false;  ///< C has D's type, order and ld
};

}  // namespace culet
