// The launches of a graph: a node each, or a fusion's nodes together.
#pragma once

#include <span>
#include <vector>

#include "culet/graph.h"

namespace culet {

/// What one launch computes.
struct GraphStep {
  int id = -1;                     ///< the node in whose place it runs: the last of a fusion
  const Fusion* fusion = nullptr;  ///< null for a node by itself
  std::vector<int> nodes;          ///< ascending
  std::vector<int> inputs;         ///< a node's own; of a fusion what comes from outside, once each
  std::vector<int> outputs;        ///< values that get memory
};

/// Requires: inputs that exist and come first; fusions that CanFuse and share no node.
class Schedule {
 public:
  explicit Schedule(const ComputeGraph& graph, std::span<const Fusion> fusions = {});

  const std::vector<GraphStep>& steps() const noexcept { return steps_; }

  /// The node at whose turn the value is made; for a leaf its own number.
  int RunAt(int id) const noexcept { return run_at_[static_cast<std::size_t>(id)]; }

  /// The fusion that makes the value; null for none.
  const Fusion* FusionOf(int id) const noexcept { return fusion_of_[static_cast<std::size_t>(id)]; }

  /// Whether only the launch that makes the value reads it, so that it needs no memory.
  bool Inside(int id) const noexcept { return inside_[static_cast<std::size_t>(id)]; }

 private:
  void FindInside(const ComputeGraph& graph);

  std::vector<int> run_at_;
  std::vector<const Fusion*> fusion_of_;
  std::vector<bool> inside_;
  std::vector<GraphStep> steps_;
};

}  // namespace culet
