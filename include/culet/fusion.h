// Fusions: nodes of a graph that one launch of a dispatch computes together.
#pragma once

#include <string>
#include <vector>

#include "culet/kernel.h"
#include "culet/status.h"

namespace culet {

class ComputeGraph;

/// Nodes that one launch computes, at the turn of the last of them. Values that nothing else reads
/// get no memory. The others overlap neither each other nor the group's inputs, except for
/// `in_place` and for caches, which are always changed in place.
struct Fusion {
  std::string name;        ///< its kind, by which it is switched off: "add_rms_norm"
  std::vector<int> nodes;  ///< two or more operations, ascending

  /// `value`, computed in the group, may overwrite `input`, which is computed elsewhere and not
  /// read afterwards.
  struct InPlace {
    int value = -1;
    int input = -1;
  };
  std::vector<InPlace> in_place = {};
};

/// Which of a dispatch's fusions are used.
struct FusionChoice {
  bool none = false;                  ///< every node by itself
  std::vector<std::string> off = {};  ///< names of those that are not used
};

/// Whether the nodes can run as one: they are operations of the graph, and no other node before the
/// last of them reads a result of the group. For dispatches that look for fusions.
Feasibility CanFuse(const ComputeGraph& graph, const Fusion& fusion);

/// The fusions of `offered`, in this order, that are not switched off, share no node with an
/// earlier one, and find their inputs unchanged: between their first and last node a cache may have
/// been changed, or a value written to a data_ptr. Requires: a graph that Verify accepts. Errors:
/// INVALID_ARGUMENT for one that CanFuse refuses.
Result<std::vector<Fusion>> ChooseFusions(const ComputeGraph& graph, std::vector<Fusion> offered,
                                          const FusionChoice& choice = {});

/// "fusion add_rms_norm of layers.0.attention_add, layers.0.mlp_norm".
std::string DescribeFusion(const ComputeGraph& graph, const Fusion& fusion);

}  // namespace culet
