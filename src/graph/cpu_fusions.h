// The groups of nodes that the CPU dispatch computes in one launch, with the same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "culet/kernel_dispatch.h"

namespace culet {

/// The names of all of them.
std::vector<std::string> CpuFusionNames();

/// Those in the graph, the largest first.
std::vector<Fusion> CpuFusions(const ComputeGraph& graph);

class PreparedFusion : public PreparedNode {
 public:
  /// Requires: one of CpuFusions.
  static std::unique_ptr<PreparedFusion> Create(const ComputeGraph& graph, const Fusion& fusion);
  virtual void Launch(const NodeLaunch& launch) const = 0;
};

/// The elements of a norm's weight.
std::vector<float> Gamma(const Weight& weight);

}  // namespace culet
