// What dispatches ask a graph when they look for fusions.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "culet/fusion.h"
#include "culet/graph.h"

namespace culet {

/// Who reads the values of a graph, which outlives it.
class Readers {
 public:
  explicit Readers(const ComputeGraph& graph) : graph_(graph) {
    readers_.resize(static_cast<std::size_t>(graph.size()));
    for (int id = 0; id < graph.size(); ++id) {
      for (const int input : graph.node(id).inputs) Of(input).push_back(id);
    }
  }
  /// Whether one node reads the value and nobody else may need it.
  bool IsOne(int id) const {
    return of(id).size() == 1 && !graph_.is_output(id) && graph_.node(id).data_ptr == 0;
  }
  /// The nodes that read it, ascending; one that reads it twice comes twice.
  const std::vector<int>& of(int id) const { return readers_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<int>& Of(int id) { return readers_[static_cast<std::size_t>(id)]; }
  const ComputeGraph& graph_;
  std::vector<std::vector<int>> readers_;
};

/// A fusion whose first node is a sum, which may lie where one of its operands does.
inline Fusion WithSum(const ComputeGraph& graph, const char* name, std::vector<int> nodes) {
  Fusion fusion{name, std::move(nodes), {}};
  const int sum = fusion.nodes.front();
  for (const int input : graph.node(sum).inputs) fusion.in_place.push_back({sum, input});
  return fusion;
}

}  // namespace culet
