#include "graph/cost.h"

#include <algorithm>

namespace culet {
namespace {

double ValueBytes(const ComputeGraph& graph, int id) noexcept {
  return static_cast<double>(BytesOf(graph.node(id)));
}

// Keys that a query of an attention node may see: all of its batch, or of a full block table.
double KeysOf(const ComputeGraph& graph, const TensorNode& node) noexcept {
  const auto keys = static_cast<double>(graph.node(node.inputs[1]).shape.rows);
  if (node.inputs.size() < 7) return keys;
  const Shape table = graph.node(node.inputs[6]).shape;
  return std::min(keys, static_cast<double>(table.cols) * node.params.attention.block_size);
}

// Bytes of the states of the node's sequences.
double StateBytes(const ComputeGraph& graph, const TensorNode& node) noexcept {
  const auto at = static_cast<std::size_t>(StateInputOf(node.op));
  const double of_one = ValueBytes(graph, node.inputs[at]) /
                        static_cast<double>(graph.node(node.inputs[at]).shape.rows);
  return of_one * static_cast<double>(graph.node(node.inputs[at + 1]).shape.rows);
}

// Bytes of input `i` that the node reads.
double BytesRead(const ComputeGraph& graph, const TensorNode& node, std::size_t i) noexcept {
  const double all = ValueBytes(graph, node.inputs[i]);
  switch (node.op) {
    case TensorOp::kKvWrite:
      return i == 0 ? 0 : all;
    case TensorOp::kAdvance:  // of the table an entry, of the logits one
      return i == 0   ? 0
             : i == 2 ? static_cast<double>(node.shape.cols) *
                            static_cast<double>(SizeOf(graph.node(node.inputs[i]).type))
             : i == 7 || i == 9 ? static_cast<double>(node.shape.cols) * sizeof(std::int32_t)
                                : all;
    case TensorOp::kEmbedding:
      return 0;
    case TensorOp::kGatherRows:
      return i == 0 ? static_cast<double>(BytesOf(node)) : 0;
    case TensorOp::kCausalConv:
    case TensorOp::kGatedDelta:  // a state a sequence
      return static_cast<int>(i) == StateInputOf(node.op) ? StateBytes(graph, node) : all;
    case TensorOp::kHeadSlice:
      return static_cast<double>(BytesOf(node));
    case TensorOp::kAttention: {
      if (i == 2 && node.params.attention.value_dim > 0) return 0;  // with the keys
      if (node.inputs.size() < 7 || i < 1 || i > 2) return all;
      const auto rows = static_cast<double>(graph.node(node.inputs[i]).shape.rows);
      const auto sequences = static_cast<double>(graph.node(node.inputs[6]).shape.rows);
      return all * std::min(1.0, KeysOf(graph, node) * sequences / rows);
    }
    default:
      return all;
  }
}

double BytesWritten(const ComputeGraph& graph, const TensorNode& node) noexcept {
  if (StateInputOf(node.op) >= 0) {
    return static_cast<double>(BytesOf(node)) + StateBytes(graph, node);
  }
  if (node.op == TensorOp::kAdvance) {
    return (node.inputs.size() > 8 ? 6 : 5) * ValueBytes(graph, node.inputs[1]);
  }
  return node.op == TensorOp::kKvWrite ? ValueBytes(graph, node.inputs[1])
                                       : static_cast<double>(BytesOf(node));
}

// Of one expert, times the experts that the node's rows can go to.
double ExpertBytes(const TensorNode& node) noexcept {
  const ExpertWeights* experts = node.params.experts.get();
  if (experts == nullptr || experts->weights.empty()) return 0;
  const double used =
      std::min(static_cast<double>(node.shape.rows), static_cast<double>(experts->weights.size()));
  const double bias = experts->biases.empty() ? 0 : BytesOf(experts->biases.front());
  return used * (BytesOf(experts->weights.front()) + bias);
}

bool IsProduct(const TensorNode& node) noexcept {
  return node.op == TensorOp::kMulMat || node.op == TensorOp::kHeadMulMat;
}

double WeightBytes(const TensorNode& node) noexcept {
  double bytes =
      BytesOf(node.params.gamma) + BytesOf(node.params.bias) + BytesOf(node.params.sinks);
  if (IsProduct(node) || node.op == TensorOp::kCausalConv) bytes += BytesOf(node.params.weight);
  if (node.op == TensorOp::kEmbedding) bytes += static_cast<double>(BytesOf(node));
  if (node.op == TensorOp::kExpertMulMat) bytes += ExpertBytes(node);
  return bytes;
}

double Operations(const ComputeGraph& graph, const TensorNode& node) noexcept {
  const auto rows = static_cast<double>(node.shape.rows);
  const OpParams& params = node.params;
  if (IsProduct(node)) {
    return 2 * rows * static_cast<double>(params.weight.rows) *
           static_cast<double>(params.weight.cols);
  }
  if (node.op == TensorOp::kAttention && node.inputs.size() >= 3) {
    const AttentionParams& a = params.attention;
    return 2 * rows * KeysOf(graph, node) * a.heads * (a.head_dim + a.out_dim());
  }
  if (node.op == TensorOp::kExpertMulMat && !node.inputs.empty()) {
    return 2 * rows * static_cast<double>(node.shape.cols) *
           static_cast<double>(graph.node(node.inputs[0]).shape.cols);
  }
  if (node.op == TensorOp::kCausalConv) {
    return 2 * rows * static_cast<double>(params.weight.rows * params.weight.cols);
  }
  // Of a state and a key, of a key and what is added, of a state and a query.
  if (node.op == TensorOp::kGatedDelta) {
    return 6 * rows * static_cast<double>(params.delta.state_cols());
  }
  return 0;
}

}  // namespace

NodeCost CostOf(const ComputeGraph& graph, int id) noexcept {
  const TensorNode& node = graph.node(id);
  NodeCost cost;
  if (node.op == TensorOp::kNone || IsSecond(node.op)) return cost;
  cost.bytes = BytesWritten(graph, node) + WeightBytes(node);
  if (SecondOf(node.op) != TensorOp::kNone) cost.bytes += ValueBytes(graph, id + 1);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) cost.bytes += BytesRead(graph, node, i);
  cost.operations = Operations(graph, node);
  return cost;
}

NodeCost CostOf(const ComputeGraph& graph, const GraphStep& step) noexcept {
  if (step.fusion == nullptr) return CostOf(graph, step.id);
  NodeCost cost;
  for (const int id : step.nodes) {
    cost.bytes += WeightBytes(graph.node(id));
    cost.operations += Operations(graph, graph.node(id));
  }
  for (const int id : step.outputs) cost.bytes += BytesWritten(graph, graph.node(id));
  // Inputs from outside, and what a cache held before.
  std::vector<int> read = step.inputs;
  for (const int id : step.outputs) {
    if (graph.node(id).op == TensorOp::kKvWrite) read.push_back(id);
  }
  for (const int value : read) {
    double most = 0;
    for (const int id : step.nodes) {
      const TensorNode& node = graph.node(id);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == value) most = std::max(most, BytesRead(graph, node, i));
      }
    }
    cost.bytes += most;
  }
  return cost;
}

}  // namespace culet
