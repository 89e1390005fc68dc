// Every node of a session's steps beside a reference, on the same inputs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "culet/status.h"

namespace culet::cli {

/// What one node's value is off.
struct NodeError {
  std::string node;  ///< "node 7 (layers.0.q) mul_mat ...", as DescribeNode
  std::string op;
  std::string step;  ///< which step: "prompt", "step 1"
  double error = 0;  ///< relative L2; of integers, the share that differs
  double bound = 0;
  bool within() const { return error <= bound; }  // false for a NaN
};

/// Each node's inputs are those that the dispatch under test made, so errors do not add up.
class NodeComparison {
 public:
  /// `bound`: for values of float32; others add what their own rounding may differ by.
  NodeComparison(double bound, std::unique_ptr<KernelDispatch> reference);

  /// The hook that launches and compares; the comparison must outlive it. `step` names the step.
  NodeHook Hook(std::string step);
  /// In the order of their launches.
  const std::vector<NodeError>& errors() const { return errors_; }

 private:
  Status Compare(KernelDispatch& dispatch, const NodeLaunch& launch, const std::string& step);
  double BoundOf(const TensorNode& node) const;

  double bound_;
  std::unique_ptr<KernelDispatch> reference_;
  std::vector<NodeError> errors_;
};

}  // namespace culet::cli
