// What a GemmPlan holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "culet/desc.h"
#include "culet/kernel.h"
#include "gemm/extent.h"

namespace culet {

/// What a plan reads at the same place in each launch.
struct BoundInput {
  const char* name;
  const void* data;
  Footprint place;
};

/// What a profiler shows of a launch: "cpu_simd/skinny/m8n3 16x4096x1024".
std::string RangeName(const Kernel& kernel, const GemmDesc& desc);

struct PlanState {
  GemmDesc desc;
  LaunchSpec spec;
  WorkspaceSize workspace_size;
  std::unique_ptr<PreparedKernel> prepared;
  std::vector<BoundInput> bound;  ///< B, V, bias, zero points
  void* W = nullptr;              ///< D's scales; null: none, or they come with each launch
  Footprint a, u, c, d, w;
  int ordinal = -1;         ///< of the plan's CUDA device; -1: the host
  bool c_may_be_d = false;  ///< C has D's layout
};

}  // namespace culet
