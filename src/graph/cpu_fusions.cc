#include "graph/cpu_fusions.h"

#include <utility>

#include "culet/kernel_dispatch.h"

namespace culet {
namespace {

bool IsFloat32(const ComputeGraph& graph, int id) {
  return graph.node(id).type == DataType::kFloat32;
}

// The norm's sum, where it is one that can be fused; -1 otherwise.
int SumBefore(const ComputeGraph& graph, int norm) {
  const TensorNode& node = graph.node(norm);
  if (node.op != TensorOp::kRmsNorm) return -1;
  const int sum = node.inputs[0];
  if (graph.node(sum).op != TensorOp::kAdd) return -1;
  return IsFloat32(graph, sum) && IsFloat32(graph, norm) ? sum : -1;
}

}  // namespace

std::vector<Fusion> CpuFusions(const ComputeGraph& graph) {
  std::vector<Fusion> found;
  for (int id = 0; id < graph.size(); ++id) {
    const int sum = SumBefore(graph, id);
    if (sum < 0) continue;
    Fusion fusion{kAddRmsNorm, {sum, id}, {}};
    for (const int input : graph.node(sum).inputs) fusion.in_place.push_back({sum, input});
    if (CanFuse(graph, fusion).ok()) found.push_back(std::move(fusion));
  }
  return found;
}

}  // namespace culet
