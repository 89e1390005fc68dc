#include "graph/schedule.h"

#include <algorithm>

#include "graph/operations.h"

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
  // A second value is made where the first is.
  for (int id = 1; id < graph.size(); ++id) {
    if (!IsSecond(graph.node(id).op)) continue;
    const auto at = static_cast<std::size_t>(id);
    run_at_[at] = run_at_[at - 1];
    fusion_of_[at] = fusion_of_[at - 1];
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
      if (SecondOf(graph.node(id).op) != TensorOp::kNone) step.outputs.push_back(id + 1);
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
        if (SecondOf(graph.node(member).op) != TensorOp::kNone && !Inside(member + 1)) {
          step.outputs.push_back(member + 1);
        }
      }
    }
    steps_.push_back(std::move(step));
  }
}

void Schedule::FindInside(const ComputeGraph& graph) {
  for (int id = 0; id < graph.size(); ++id) {
    const TensorNode& node = graph.node(id);
    // A group's results are its last node's values and the caches that it writes.
    const int maker = IsSecond(node.op) ? id - 1 : id;
    inside_[static_cast<std::size_t>(id)] = FusionOf(id) != nullptr && RunAt(id) != maker &&
                                            node.data_ptr == 0 && !graph.is_output(id) &&
                                            !ChangesFirstInput(node.op);
    for (const int input : node.inputs) {
      if (FusionOf(input) != FusionOf(id)) inside_[static_cast<std::size_t>(input)] = false;
    }
  }
}

}  // namespace culet
