#include "graph/cuda/fused_norm.h"

#include <algorithm>

namespace culet::cuda_ops {

int FirstOf(const ComputeGraph& graph, const Fusion& fusion, TensorOp op) {
  const auto found = std::ranges::find(fusion.nodes, op, [&](int id) { return graph.node(id).op; });
  return found == fusion.nodes.end() ? -1 : *found;
}

NormOfFusion::NormOfFusion(const ComputeGraph& graph, const Fusion& fusion)
    : sum_(FirstOf(graph, fusion, TensorOp::kAdd)),
      norm_(FirstOf(graph, fusion, TensorOp::kRmsNorm)),
      rows_(FirstOf(graph, fusion, TensorOp::kGatherRows)),
      codes_(FirstOf(graph, fusion, TensorOp::kQuantize)) {}

FusedNormArgs NormOfFusion::Args(const NodeLaunch& launch) const {
  const ComputeGraph& graph = *launch.graph;
  const TensorNode& norm = graph.node(norm_);
  const std::vector<int>& operands = graph.node(sum_ < 0 ? norm_ : sum_).inputs;
  FusedNormArgs args;
  args.x = FromDevicePtr<const void>(launch.value(operands[0]));
  args.x_type = graph.node(operands[0]).type;
  if (sum_ >= 0) {
    args.y = FromDevicePtr<const void>(launch.value(operands[1]));
    args.sum = FromDevicePtr<void>(launch.value(sum_));
  }
  if (rows_ >= 0) {
    args.from = FromDevicePtr<const std::int32_t>(launch.value(graph.node(rows_).inputs[1]));
    args.source_rows = graph.node(sum_).shape.rows;
  }
  args.gamma = FromDevicePtr<const void>(norm.params.gamma.data_ptr);
  args.gamma_type = norm.params.gamma.type;
  args.epsilon = norm.params.scalar;
  args.out = FromDevicePtr<void>(launch.value(norm_));
  args.out_type = norm.type;
  if (codes_ >= 0) {
    args.to = {FromDevicePtr<std::uint8_t>(launch.value(codes_)),
               FromDevicePtr<float>(launch.value(codes_ + 1))};
  }
  args.rows = norm.shape.rows;
  args.width = static_cast<int>(norm.shape.cols);
  return args;
}

}  // namespace culet::cuda_ops
