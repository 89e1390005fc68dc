// What ComputeGraph::Verify demands of a node: a rule for each operation, named in its row of
// operations.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "culet/graph.h"
#include "graph/verify_inputs.h"

namespace culet {

/// Each rule returns the reason for a refusal; empty is fine. Requires: inputs that exist, come
/// first and are as many as the operation's row says.
class NodeRules : NodeInputs {
 public:
  using NodeInputs::NodeInputs;

  /// The node's shape, type, address and inputs, then the rule of its operation.
  std::string Check() const;

  // Element by element; `Elements` is enough for one without attributes (verify.cc).
  std::string Elements() const;
  std::string Copy() const;
  std::string Cast() const;
  std::string Scale() const;
  std::string SoftCap() const;
  std::string ClampedSwiGlu() const;
  std::string AllReduce() const;
  std::string AllGather() const;
  std::string AllArgMax() const;

  std::string MulMat() const;
  std::string HeadMulMat() const;
  std::string RmsNorm() const;
  std::string LayerNorm() const;
  std::string PositionScale() const;
  std::string Rope() const;
  std::string Attention() const;
  std::string Embedding() const;
  std::string KvWrite() const;
  std::string GatherRows() const;
  std::string ArgMax() const;
  std::string Advance() const;
  std::string Sample() const;
  std::string Quantize() const;
  std::string Scales() const;

  // verify_experts.cc
  std::string Route() const;
  std::string Routes() const;
  std::string ExpertMulMat() const;
  std::string Combine() const;

  // verify_linear.cc
  std::string HeadSlice() const;
  std::string CausalConv() const;
  std::string GatedDelta() const;

 private:
  std::string Value() const;
  std::string Inputs() const;
  std::string Operands() const;
  std::string Parts() const;
  std::string CacheScales(std::size_t i, std::int64_t heads) const;
  std::string Groups(std::int64_t experts) const;
  std::string PartOf(std::int64_t experts) const;
  std::string Routed(std::size_t first, std::int64_t routes) const;
  std::string Experts(std::int64_t count, bool codes, bool shared) const;
  std::string Heads() const;
  std::string Sequences(std::size_t i, std::int64_t cols) const;
};

}  // namespace culet
