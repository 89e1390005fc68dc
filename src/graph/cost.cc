#include "graph/cost.h"

#include <algorithm>
#include <cstdint>

#include "graph/operations.h"

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
  const OperationInfo& info = InfoOf(node.op);
  if (static_cast<int>(i) == info.state) return StateBytes(graph, node);
  return info.reads != nullptr ? info.reads(graph, node, i) : ValueBytes(graph, node.inputs[i]);
}

double BytesWritten(const ComputeGraph& graph, const TensorNode& node) noexcept {
  const OperationInfo& info = InfoOf(node.op);
  if (info.writes != nullptr) return info.writes(graph, node);
  const auto value = static_cast<double>(BytesOf(node));
  return info.state >= 0 ? value + StateBytes(graph, node) : value;
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

double WeightBytes(const TensorNode& node) noexcept {
  double bytes = ExpertBytes(node);
  for (const auto weight : kWeightsOfOp) {
    const bool picked = InfoOf(node.op).picks_rows && weight == &OpParams::weight;
    bytes += picked ? static_cast<double>(BytesOf(node)) : BytesOf(node.params.*weight);
  }
  return bytes;
}

double Operations(const ComputeGraph& graph, const TensorNode& node) noexcept {
  const OperationInfo& info = InfoOf(node.op);
  return info.operations != nullptr ? info.operations(graph, node) : 0;
}

}  // namespace

double ReadNothing(const ComputeGraph&, const TensorNode&, std::size_t) { return 0; }

double ReadAsWritten(const ComputeGraph&, const TensorNode& node, std::size_t) {
  return static_cast<double>(BytesOf(node));
}

double ReadByKvWrite(const ComputeGraph& graph, const TensorNode& node, std::size_t i) {
  return i == 0 ? 0 : ValueBytes(graph, node.inputs[i]);
}

// Of the table an entry, of the logits one.
double ReadByAdvance(const ComputeGraph& graph, const TensorNode& node, std::size_t i) {
  const TensorNode& input = graph.node(node.inputs[i]);
  const auto sequences = static_cast<double>(node.shape.cols);
  if (i == 0) return 0;
  if (i == 2) return sequences * static_cast<double>(SizeOf(input.type));
  return i == 7 || i == 9 ? sequences * sizeof(std::int32_t) : static_cast<double>(BytesOf(input));
}

double ReadByGatherRows(const ComputeGraph&, const TensorNode& node, std::size_t i) {
  return i == 0 ? static_cast<double>(BytesOf(node)) : 0;
}

double ReadByAttention(const ComputeGraph& graph, const TensorNode& node, std::size_t i) {
  const double all = ValueBytes(graph, node.inputs[i]);
  if (i == 2 && node.params.attention.value_dim > 0) return 0;  // with the keys
  if (node.inputs.size() < 7 || i < 1 || i > 2) return all;
  const auto rows = static_cast<double>(graph.node(node.inputs[i]).shape.rows);
  const auto sequences = static_cast<double>(graph.node(node.inputs[6]).shape.rows);
  return all * std::min(1.0, KeysOf(graph, node) * sequences / rows);
}

double WrittenByKvWrite(const ComputeGraph& graph, const TensorNode& node) {
  return ValueBytes(graph, node.inputs[1]);
}

double WrittenByAdvance(const ComputeGraph& graph, const TensorNode& node) {
  return (node.inputs.size() > 8 ? 6 : 5) * ValueBytes(graph, node.inputs[1]);
}

double OperationsOfProduct(const ComputeGraph&, const TensorNode& node) {
  const Weight& weight = node.params.weight;
  return 2 * static_cast<double>(node.shape.rows) * static_cast<double>(weight.rows) *
         static_cast<double>(weight.cols);
}

double OperationsOfExperts(const ComputeGraph& graph, const TensorNode& node) {
  if (node.inputs.empty()) return 0;
  return 2 * static_cast<double>(node.shape.rows) * static_cast<double>(node.shape.cols) *
         static_cast<double>(graph.node(node.inputs[0]).shape.cols);
}

double OperationsOfAttention(const ComputeGraph& graph, const TensorNode& node) {
  if (node.inputs.size() < 3) return 0;
  const AttentionParams& a = node.params.attention;
  return 2 * static_cast<double>(node.shape.rows) * KeysOf(graph, node) * a.heads *
         (a.head_dim + a.out_dim());
}

// Of a state and a key, of a key and what is added, of a state and a query.
double OperationsOfDelta(const ComputeGraph&, const TensorNode& node) {
  return 6 * static_cast<double>(node.shape.rows) *
         static_cast<double>(node.params.delta.state_cols());
}

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
