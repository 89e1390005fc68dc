#include "graph/liveness.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet {
namespace {

bool MayWriteInPlace(TensorOp op) noexcept {
  switch (op) {
    case TensorOp::kAdd:
    case TensorOp::kMul:
    case TensorOp::kSilu:
    case TensorOp::kSwiGlu:
    case TensorOp::kRope:
      return true;
    default:
      return false;
  }
}

}  // namespace

Liveness::Liveness(const ComputeGraph& graph) : graph_(graph) {
  const int size = graph.size();
  last_reader_.resize(static_cast<std::size_t>(size));
  alias_.assign(static_cast<std::size_t>(size), -1);
  root_.resize(static_cast<std::size_t>(size));
  last_use_.resize(static_cast<std::size_t>(size));
  for (int id = 0; id < size; ++id) {
    last_reader_[static_cast<std::size_t>(id)] = graph.is_output(id) ? size : id;
    for (const int input : graph.node(id).inputs) {
      int& last = last_reader_[static_cast<std::size_t>(input)];
      last = std::max(last, id);
    }
  }
  for (int id = 0; id < size; ++id) {
    const auto i = static_cast<std::size_t>(id);
    alias_[i] = FindAlias(id);
    root_[i] = alias_[i] < 0 ? id : root_[static_cast<std::size_t>(alias_[i])];
    last_use_[i] = last_reader_[i];
    int& last = last_use_[static_cast<std::size_t>(root_[i])];
    last = std::max(last, last_reader_[i]);
  }
}

int Liveness::FindAlias(int id) const {
  const TensorNode& node = graph_.node(id);
  if (node.op == TensorOp::kKvWrite) return node.inputs[0];
  if (!MayWriteInPlace(node.op)) return -1;
  const std::size_t operands =
      node.op == TensorOp::kRope ? 1 : node.inputs.size();  // positions are no operand
  for (std::size_t i = 0; i < operands; ++i) {
    const int input = node.inputs[i];
    const TensorNode& value = graph_.node(input);
    // A leaf is the caller's; what has a data_ptr was put there on purpose.
    if (value.op == TensorOp::kNone || value.op == TensorOp::kKvWrite) continue;
    if (value.data_ptr != 0 || node.data_ptr != 0) continue;
    if (value.type != node.type || !(value.shape == node.shape)) continue;
    if (LastReader(input) == id) return input;
  }
  return -1;
}

std::string Liveness::OverwriteBy(int id) const {
  const TensorNode& node = graph_.node(id);
  if (node.op == TensorOp::kNone) return {};
  if (node.op == TensorOp::kKvWrite) {
    const int cache = node.inputs[0];
    if (LastReader(cache) == id) return {};
    return fmt::format("it changes node {} in place, which node {} reads later", cache,
                       LastReader(cache));
  }
  if (node.data_ptr == 0) return {};
  const DevicePtr begin = node.data_ptr;
  const DevicePtr end = begin + static_cast<DevicePtr>(BytesOf(node));
  for (int other = 0; other < graph_.size(); ++other) {
    const TensorNode& value = graph_.node(other);
    if (other == id || value.data_ptr == 0) continue;
    const DevicePtr first = value.data_ptr;
    const DevicePtr last = first + static_cast<DevicePtr>(BytesOf(value));
    if (begin >= last || first >= end) continue;
    // What is written later finds this node's value there, and is asked itself.
    const bool written_before = value.op == TensorOp::kNone || other < id;
    if (!written_before) continue;
    const int last_use = LastUse(other);
    if (last_use < id) continue;
    const bool in_place = MayWriteInPlace(node.op) && last_use == id && first == begin &&
                          BytesOf(value) == BytesOf(node);
    const bool is_operand = std::ranges::find(node.inputs, other) != node.inputs.end();
    if (in_place && is_operand) continue;
    return fmt::format(
        "it writes where node {} ({}) lies, which {} still reads", other, value.name,
        last_use >= graph_.size() ? std::string("the caller") : fmt::format("node {}", last_use));
  }
  return {};
}

}  // namespace culet
