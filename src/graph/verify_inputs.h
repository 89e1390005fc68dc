// What checks of a node ask of its inputs. Each method returns the reason for a refusal; empty is
// fine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "base/scales.h"
#include "culet/graph.h"
#include "graph/verify_weight.h"

namespace culet {

class NodeInputs {
 public:
  NodeInputs(const ComputeGraph& graph, int id)
      : graph_(graph), id_(id), node_(graph.node(id)), params_(node_.params) {}

 protected:
  const TensorNode& In(std::size_t i) const { return graph_.node(node_.inputs[i]); }

  std::string CountIs(std::size_t count) const {
    if (node_.inputs.size() == count) return {};
    return fmt::format("it has {} inputs; {} takes {}", node_.inputs.size(), ToString(node_.op),
                       count);
  }

  std::string InputIs(std::size_t i, Shape shape, const char* what) const {
    if (In(i).shape == shape) return {};
    return fmt::format("input {} ({}) is [{}, {}]; it must be [{}, {}]", i, what, In(i).shape.rows,
                       In(i).shape.cols, shape.rows, shape.cols);
  }

  std::string InputIsFloat(std::size_t i) const {
    if (IsFloat(In(i).type)) return {};
    return fmt::format("input {} is {}; it must be floating point", i, ToString(In(i).type));
  }

  std::string Indices(std::size_t i, Shape shape, const char* what) const {
    if (In(i).type != DataType::kInt32) {
      return fmt::format("input {} ({}) is {}; it must be int32", i, what, ToString(In(i).type));
    }
    return InputIs(i, shape, what);
  }

  std::string IsFloatValue() const {
    if (IsFloat(node_.type)) return {};
    return fmt::format("the value is {}; it must be floating point", ToString(node_.type));
  }

  // A vector of `cols` elements, or none.
  std::string Vector(const char* what, const Weight& weight, std::int64_t cols) const {
    if (weight.rows != 1 || weight.cols != cols) {
      return fmt::format("{} is [{}, {}]; it must be [1, {}]", what, weight.rows, weight.cols,
                         cols);
    }
    if (!IsFloat(weight.type)) {
      return fmt::format("{} is {}; it must be floating point", what, ToString(weight.type));
    }
    return WhyNotPlaced(what, weight);
  }

  // quant_a, as a quantiser takes it.
  std::string CheckGroups() const {
    if (params_.quant_a.type == QuantType::kK && params_.quant_a.group_size >= 1)
      return WhyNotScale(params_);
    if (params_.quant_a == QuantDesc{QuantType::kRow}) return WhyNotScale(params_);
    return "quant_a must be kK, with a group of 1 or more elements, or kRow";
  }

  // Input `i`: the scales of codes of that shape.
  std::string CheckScales(std::size_t i, Shape codes) const {
    if (auto r = CheckGroups(); !r.empty()) return r;
    if (In(i).type != DataType::kFloat32) {
      return fmt::format("input {} (scales) is {}; it must be float32", i, ToString(In(i).type));
    }
    return InputIs(i, {codes.rows, InputScalesOf(params_.quant_a, codes.cols)}, "scales");
  }

  const ComputeGraph& graph_;
  const int id_;
  const TensorNode& node_;
  const OpParams& params_;
};

}  // namespace culet
