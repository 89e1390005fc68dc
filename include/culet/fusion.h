// Fusions: nodes of a graph that one launch of a dispatch computes together.
#pragma once

#include <string>
#include <vector>

#include "culet/kernel.h"
#include "culet/status.h"

namespace culet {

class ComputeGraph;

/// Nodes that one launch computes, in the place of the last of them. Values that nobody else reads
/// get no memory. The others lie apart from each other and from everything that the group reads,
/// but for `in_place` and for caches, which are always changed in place.
struct Fusion {
  std::string name;        ///< its kind, by which it is switched off: "add_rms_norm"
  std::vector<int> nodes;  ///< two or more operations, ascending

  /// `value`, made in the group, may be written where `input` lies, which is made elsewhere and
  /// read by nobody afterwards.
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

/// Whether the nodes can run as one: they are operations of the graph, and no other node that comes
/// before the last of them reads what one of them makes. For dispatches that look for fusions.
Feasibility CanFuse(const ComputeGraph& graph, const Fusion& fusion);

/// Of the fusions `offered`, in this order, those that are not switched off, share no node with an
/// earlier one, and find what they read still there: a cache may have been changed, and a value
/// written to a data_ptr, between their first node and their last.
/// Requires: a graph that Verify accepts. Errors: INVALID_ARGUMENT for one that CanFuse refuses.
Result<std::vector<Fusion>> ChooseFusions(const ComputeGraph& graph, std::vector<Fusion> offered,
                                          const FusionChoice& choice = {});

/// "fusion add_rms_norm of layers.0.attention_add, layers.0.mlp_norm".
std::string DescribeFusion(const ComputeGraph& graph, const Fusion& fusion);

}  // namespace culet
