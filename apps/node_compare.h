// Every node of a session's steps beside a reference, on the same inputs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "culet/decoder.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "culet/status.h"

namespace culet::cli {

/// The error of one value.
struct NodeError {
  std::string node;  ///< "node 7 (layers.0.q) mul_mat ...", as DescribeNode; its fusion before that
  std::string op;    ///< the operation, or the fusion's name
  std::string step;  ///< which step: "prompt", "step 1"
  double error = 0;  ///< relative L2; of integers, the share that differs
  double bound = 0;
  bool within() const { return error <= bound; }  // false for a NaN
};

/// Each node's inputs are those that the dispatch under test made, so errors do not add up. A
/// fusion is compared as a whole, within the bounds of all its nodes.
class NodeComparison {
 public:
  /// `bound`: for float32 values; other types add their own rounding error.
  NodeComparison(double bound, std::unique_ptr<KernelDispatch> reference);

  /// Where the dispatch's weights lie in memory of a device: `on_host` is the same model in the
  /// host's, and must outlive the comparison.
  void ReadWeightsOf(const DecoderModel& on_host);
  /// Whether products may round float32 inputs to their weight's 16 bits.
  void AllowRoundedInputs(bool allow) { rounded_inputs_ = allow; }
  /// Whether products of E4M3 may be summed in a matrix unit's few bits (docs/numerics.md).
  void AllowShortSums(bool allow) { short_sums_ = allow; }

  /// The hook that launches and compares; the comparison must outlive it. `step` names the step.
  NodeHook Hook(std::string step);
  /// In the order of their launches.
  const std::vector<NodeError>& errors() const { return errors_; }

 private:
  using HostValues = std::map<int, DeviceBuffer>;  // by node

  Status Compare(KernelDispatch& dispatch, const NodeLaunch& launch, const std::string& step);
  Status RunReference(const ComputeGraph& graph, int id, cudaStream_t stream, HostValues& values);
  double BoundOf(const ComputeGraph& graph, const TensorNode& node) const;

  const ComputeGraph& OnHost(const ComputeGraph& graph, const std::string& step);
  void SetHostWeight(Weight& weight) const;

  double bound_;
  bool rounded_inputs_ = false;
  bool short_sums_ = false;
  std::map<std::string, Weight> host_weights_;  // by name; empty where none are needed
  // The graph of the last step with the host's weights.
  ComputeGraph host_graph_;
  const ComputeGraph* host_graph_of_ = nullptr;
  std::string host_graph_step_;
  std::unique_ptr<KernelDispatch> reference_;
  std::vector<NodeError> errors_;
};

}  // namespace culet::cli
