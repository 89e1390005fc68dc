#include "graph/liveness.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/operations.h"

namespace culet {

Liveness::Liveness(const ComputeGraph& graph, const Schedule& schedule)
    : graph_(graph), schedule_(schedule) {
  const int size = graph.size();
  last_reader_.resize(static_cast<std::size_t>(size));
  alias_.assign(static_cast<std::size_t>(size), -1);
  root_.resize(static_cast<std::size_t>(size));
  for (int id = 0; id < size; ++id) {
    const auto i = static_cast<std::size_t>(id);
    root_[i] = id;
    last_reader_[i] = graph.is_output(id) ? size : schedule.RunAt(id);
    for (const int input : graph.node(id).inputs) {
      int& last = last_reader_[static_cast<std::size_t>(input)];
      last = std::max(last, schedule.RunAt(id));
    }
  }
  last_use_ = last_reader_;
  // In the order in which they are written, so that the place taken has its root.
  for (const GraphStep& step : schedule.steps()) {
    for (const int id : step.outputs) {
      const auto i = static_cast<std::size_t>(id);
      alias_[i] = FindAlias(id);
      if (alias_[i] < 0) continue;
      root_[i] = root_[static_cast<std::size_t>(alias_[i])];
      int& last = last_use_[static_cast<std::size_t>(root_[i])];
      last = std::max(last, last_reader_[i]);
    }
  }
}

bool Liveness::MayTakePlaceOf(int input, int id) const {
  const TensorNode &node = graph_.node(id), &value = graph_.node(input);
  // A leaf belongs to the caller, and a node with a data_ptr was placed there on purpose.
  if (value.op == TensorOp::kNone || ChangesFirstInput(value.op)) return false;
  if (value.data_ptr != 0 || node.data_ptr != 0) return false;
  if (value.type != node.type || !(value.shape == node.shape)) return false;
  return LastReader(input) == schedule_.RunAt(id);
}

int Liveness::FindAliasInFusion(int id, const Fusion& fusion) const {
  for (const Fusion::InPlace& pair : fusion.in_place) {
    if (pair.value != id || !MayTakePlaceOf(pair.input, id)) continue;
    // An input's memory can be reused by one value only.
    const bool taken =
        std::ranges::any_of(fusion.nodes, [&](int other) { return AliasOf(other) == pair.input; });
    if (!taken) return pair.input;
  }
  return -1;
}

int Liveness::FindAlias(int id) const {
  const TensorNode& node = graph_.node(id);
  if (ChangesFirstInput(node.op)) return node.inputs[0];
  if (const Fusion* fusion = schedule_.FusionOf(id)) return FindAliasInFusion(id, *fusion);
  for (int i = 0; i < InfoOf(node.op).in_place; ++i) {
    const int input = node.inputs[static_cast<std::size_t>(i)];
    if (MayTakePlaceOf(input, id)) return input;
  }
  return -1;
}

bool Liveness::MayWriteOver(int input, int id) const {
  const TensorNode& node = graph_.node(id);
  const Fusion* fusion = schedule_.FusionOf(id);
  if (fusion == nullptr) {
    const auto end = node.inputs.begin() + InfoOf(node.op).in_place;
    return std::find(node.inputs.begin(), end, input) != end;
  }
  return std::ranges::any_of(fusion->in_place, [&](const Fusion::InPlace& pair) {
    return pair.value == id && pair.input == input;
  });
}

std::string Liveness::OverwriteBy(int id) const {
  const TensorNode& node = graph_.node(id);
  if (node.op == TensorOp::kNone) return {};
  const int at = schedule_.RunAt(id);
  if (ChangesFirstInput(node.op)) {
    // Of an Advance the log, ids, positions, slots and lengths, and other slots.
    const std::size_t changed = node.op == TensorOp::kAdvance ? node.inputs.size() : 1;
    for (std::size_t i = 0; i < changed; ++i) {
      if (i == 1 || i == 2 || i == 7 || i == 9) continue;
      const int input = node.inputs[i];
      if (LastReader(input) == at) continue;
      return fmt::format("it changes node {} in place, which node {} reads later", input,
                         LastReader(input));
    }
    return {};
  }
  if (const int state = StateInputOf(node.op); state >= 0) {
    const int input = node.inputs[static_cast<std::size_t>(state)];
    if (LastReader(input) != at) {
      return fmt::format("it changes node {} in place, which node {} reads later", input,
                         LastReader(input));
    }
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
    // Later writes to this memory are checked when their own node is.
    const bool written_before = value.op == TensorOp::kNone || schedule_.RunAt(other) <= at;
    if (!written_before) continue;
    const int last_use = LastUse(other);
    if (last_use < at) continue;
    const bool same_place = first == begin && BytesOf(value) == BytesOf(node);
    if (last_use == at && same_place && MayWriteOver(other, id)) continue;
    return fmt::format(
        "it writes where node {} ({}) lies, which {} still reads", other, value.name,
        last_use >= graph_.size() ? std::string("the caller") : fmt::format("node {}", last_use));
  }
  return {};
}

}  // namespace culet
