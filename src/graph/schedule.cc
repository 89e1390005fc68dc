#include "graph/schedule.h"

#include <algorithm>

namespace culet {

Schedule::Schedule(const ComputeGraph& graph, std::span<const Fusion> fusions)
    : fusion_of_(static_cast<std::size_t>(graph.size())),
      inside_(static_cast<std::size_t>(graph.size())) {
  for (int id = 0; id < graph.size(); ++id) run_at_.push_back(id);
  for (const Fusion& fusion : fusions) {
    for (const int id : fusion.nodes) {
      run_at_[static_cast<std::size_t>(id)] = fusion.nodes.back();
      fusion_of_[static_cast<std::size_t>(id)] = &fusion;
    }
  }
  FindInside(graph);
  for (int id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op == TensorOp::kNone || RunAt(id) != id) continue;
    GraphStep step;
    step.id = id;
    step.fusion = FusionOf(id);
    if (step.fusion == nullptr) {
      step.nodes = {id};
      step.inputs = graph.node(id).inputs;
      step.outputs = {id};
    } else {
      step.nodes = step.fusion->nodes;
      for (const int member : step.nodes) {
        for (const int input : graph.node(member).inputs) {
          if (FusionOf(input) == step.fusion) continue;
          if (std::ranges::find(step.inputs, input) == step.inputs.end()) {
            step.inputs.push_back(input);
          }
        }
        if (!Inside(member)) step.outputs.push_back(member);
      }
    }
    steps_.push_back(std::move(step));
  }
}

void Schedule::FindInside(const ComputeGraph& graph) {
  for (int id = 0; id < graph.size(); ++id) {
    const TensorNode& node = graph.node(id);
    // The last node's value is what the group is for, a cache's what it does.
    inside_[static_cast<std::size_t>(id)] = FusionOf(id) != nullptr && RunAt(id) != id &&
                                            node.data_ptr == 0 && !graph.is_output(id) &&
                                            node.op != TensorOp::kKvWrite;
    for (const int input : node.inputs) {
      if (FusionOf(input) != FusionOf(id)) inside_[static_cast<std::size_t>(input)] = false;
    }
  }
}

}  // namespace culet
