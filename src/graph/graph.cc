// ComputeGraph: adding nodes, and their descriptions.
#include "culet/graph.h"

#include "base/scales.h"
#include "graph/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace culet {

int ComputeGraph::add_leaf(DevicePtr data_ptr, Shape shape, DataType type, std::string name) {
  TensorNode node;
  node.data_ptr = data_ptr;
  node.shape = shape;
  node.type = type;
  node.name = std::move(name);
  nodes_.push_back(std::move(node));
  outputs_.push_back(false);
  ++n_leafs_;
  return size() - 1;
}

int ComputeGraph::add_op(TensorOp op, DevicePtr data_ptr, Shape shape, std::vector<int> inputs,
                         OpParams params, std::string name, DataType type) {
  TensorNode node;
  node.op = op;
  node.data_ptr = data_ptr;
  node.shape = shape;
  node.type = type;
  node.inputs = std::move(inputs);
  node.params = std::move(params);
  node.name = std::move(name);
  nodes_.push_back(std::move(node));
  outputs_.push_back(false);
  return size() - 1;
}

QuantizedNodes ComputeGraph::add_quantize(int x, const QuantDesc& quant, const std::string& name,
                                          float scale) {
  const Shape shape = node(x).shape;
  OpParams params;
  params.quant_a = quant;
  params.scalar = scale;
  const int codes =
      add_op(TensorOp::kQuantize, 0, shape, {x}, params, name, DataType::kFloat8_e4m3);
  const int scales = add_op(TensorOp::kScales, 0, {shape.rows, InputScalesOf(quant, shape.cols)},
                            {codes}, std::move(params), name.empty() ? name : name + "_scales");
  return {codes, scales};
}

RouteNodes ComputeGraph::add_route(int logits, const RoutingParams& routing, const Weight& bias,
                                   const std::string& name) {
  const Shape shape = node(logits).shape;
  OpParams params;
  params.routing = routing;
  params.bias = bias;
  const int shares =
      add_op(TensorOp::kRoute, 0, {shape.rows, routing.active}, {logits}, std::move(params), name);
  OpParams second;
  second.routing = routing;
  const int routes =
      add_op(TensorOp::kRoutes, 0, {1, RoutesSize(shape.cols, shape.rows * routing.active)},
             {shares}, std::move(second), name.empty() ? name : name + "_routes", DataType::kInt32);
  return {shares, routes};
}

void ComputeGraph::mark_output(int id) { outputs_[static_cast<std::size_t>(id)] = true; }

const char* ToString(RopeScaling scaling) noexcept {
  switch (scaling) {
    case RopeScaling::kNone:
      return "default";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kYarn:
      return "yarn";
    case RopeScaling::kLongRope:
      return "longrope";
  }
  return "invalid";
}

namespace {

std::string ShapeText(const TensorNode& node) {
  return fmt::format("[{}, {}] {}", node.shape.rows, node.shape.cols, ToString(node.type));
}

std::string WeightText(const char* what, const Weight& weight) {
  return fmt::format(", {} {}{}[{}, {}] {}", what, weight.name, weight.name.empty() ? "" : " ",
                     weight.rows, weight.cols, ToString(weight.type));
}

}  // namespace

std::string DescribeNode(const ComputeGraph& graph, int id) {
  const TensorNode& node = graph.node(id);
  std::string text = fmt::format("node {}", id);
  if (!node.name.empty()) text += fmt::format(" ({})", node.name);
  text += fmt::format(" {} {}", ToString(node.op), ShapeText(node));
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const int input = node.inputs[i];
    text += i == 0 ? " of " : ", ";
    text += input >= 0 && input < graph.size() ? ShapeText(graph.node(input))
                                               : fmt::format("no node {}", input);
  }
  if (node.params.weight.present()) text += WeightText("weight", node.params.weight);
  if (const ExpertWeights* experts = node.params.experts.get();
      experts != nullptr && !experts->weights.empty()) {
    text += fmt::format(", {} experts' {}", experts->weights.size(),
                        WeightText("weight", experts->weights.front()).substr(2));
  }
  if (node.params.gamma.present()) text += WeightText("gamma", node.params.gamma);
  if (node.params.bias.present()) text += WeightText("bias", node.params.bias);
  if (node.params.sinks.present()) text += WeightText("sinks", node.params.sinks);
  return text;
}

double BytesOf(const Weight& weight) noexcept {
  if (!weight.present()) return 0;
  double bytes =
      static_cast<double>(weight.rows) * static_cast<double>(weight.cols) * BitsOf(weight.type) / 8;
  const double each = static_cast<double>(SizeOf(weight.scales_type)) +
                      static_cast<double>(SizeOf(weight.zeros_type));
  bytes += static_cast<double>(ScalesOf(weight)) * each;
  if (weight.order_ptr != 0) bytes += 4.0 * static_cast<double>(weight.cols);
  return bytes;
}

}  // namespace culet
