// What ComputeGraph::Verify demands of linear attention and of parts of heads.
#include <fmt/format.h>

#include "graph/node_rules.h"

namespace culet {

std::string NodeRules::HeadSlice() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (In(0).type != node_.type) return "input and value have different types; cast first";
  const std::int64_t size = params_.head_dim, cols = In(0).shape.cols;
  if (size < 1 || cols % size != 0) {
    return fmt::format("head_dim {} does not divide the {} columns of X", size, cols);
  }
  if (auto r = InputIs(0, {node_.shape.rows, cols}, "X"); !r.empty()) return r;
  const std::int64_t heads = cols / size, count = node_.shape.cols / heads;
  if (node_.shape.cols % heads != 0 || count > size || params_.int_param > size - count) {
    return fmt::format(
        "the value has {} columns, from element {} on; {} heads of {} do not have "
        "them",
        node_.shape.cols, params_.int_param, heads, size);
  }
  return {};
}

std::string NodeRules::Heads() const {
  const GatedDeltaParams& d = params_.delta;
  if (d.key_heads >= 1 && d.key_dim >= 1 && d.value_dim >= 1 && d.value_heads >= d.key_heads &&
      d.value_heads % d.key_heads == 0) {
    return {};
  }
  return fmt::format(
      "delta has {} key heads of {}, {} value heads of {}; key_heads must divide value_heads",
      d.key_heads, d.key_dim, d.value_heads, d.value_dim);
}

// States, their rows, starts and positions, from input `i` on.
std::string NodeRules::Sequences(std::size_t i, std::int64_t cols) const {
  const TensorNode& states = In(i);
  if (states.op != TensorOp::kNone || states.type != DataType::kFloat32) {
    return fmt::format("input {} (states) must be a leaf of float32: it is changed in place", i);
  }
  if (auto r = InputIs(i, {states.shape.rows, cols}, "states"); !r.empty()) return r;
  const std::int64_t sequences = In(i + 1).shape.rows;
  if (auto r = Indices(i + 1, {sequences, 1}, "state_rows"); !r.empty()) return r;
  if (auto r = Indices(i + 2, {sequences + 1, 1}, "q_starts"); !r.empty()) return r;
  return Indices(i + 3, {node_.shape.rows, 1}, "positions");
}

std::string NodeRules::CausalConv() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  if (auto r = Heads(); !r.empty()) return r;
  const GatedDeltaParams& d = params_.delta;
  const std::int64_t cols = d.qkv_cols();
  if (auto r = InputIs(0, {node_.shape.rows, cols + d.out_cols()}, "X"); !r.empty()) return r;
  const Weight& w = params_.weight;
  if (!w.present() || !IsFloat(w.type) || w.quant != QuantDesc{}) {
    return fmt::format("the weight is {}; it must be float32, float16 or bfloat16",
                       ToString(w.type));
  }
  if (w.rows != cols || w.cols < 2) {
    return fmt::format("the weight is [{}, {}]; these heads take {} rows of 2 or more", w.rows,
                       w.cols, cols);
  }
  if (auto r = WhyNotPlaced("the weight", w); !r.empty()) return r;
  if (node_.shape.cols != cols) {
    return fmt::format("the value has {} columns; these heads make {}", node_.shape.cols, cols);
  }
  return Sequences(1, (w.cols - 1) * cols);
}

std::string NodeRules::GatedDelta() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = Heads(); !r.empty()) return r;
  const GatedDeltaParams& d = params_.delta;
  const std::int64_t rows = node_.shape.rows, heads = d.value_heads;
  for (const std::size_t i : {0, 1}) {
    if (auto r = InputIsFloat(i); !r.empty()) return r;
  }
  if (auto r = InputIs(0, {rows, d.qkv_cols()}, "X"); !r.empty()) return r;
  if (auto r = InputIs(1, {rows, 2 * heads}, "gates"); !r.empty()) return r;
  if (auto r = Vector("gamma", params_.gamma, heads); !r.empty()) return r;
  if (auto r = Vector("the bias", params_.bias, heads); !r.empty()) return r;
  if (!(params_.scalar > 0)) {
    return fmt::format("scalar, the epsilon, is {}; it must be above 0", params_.scalar);
  }
  if (node_.shape.cols != d.out_cols()) {
    return fmt::format("the value has {} columns; these heads make {}", node_.shape.cols,
                       d.out_cols());
  }
  return Sequences(2, d.state_cols());
}

}  // namespace culet
