#include "graph/cpu_linear.h"

#include <cmath>

#include "base/float_types.h"
#include "graph/cpu_fusions.h"
#include "graph/state_inputs.h"
#include "kernels/ops/linear_attention.h"

namespace culet {
namespace {

// (taps, cols) of (cols, taps).
std::vector<float> Transposed(const Weight& weight) {
  const auto* const from = FromDevicePtr<const void>(weight.data_ptr);
  std::vector<float> to(static_cast<std::size_t>(weight.rows * weight.cols));
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    for (std::int64_t col = 0; col < weight.cols; ++col) {
      to[static_cast<std::size_t>(col * weight.rows + row)] =
          static_cast<float>(LoadAsDouble(from, weight.type, row * weight.cols + col));
    }
  }
  return to;
}

}  // namespace

PreparedLinear::PreparedLinear(const TensorNode& node) : op_(node.op) {
  if (op_ == TensorOp::kCausalConv) {
    weight_ = Transposed(node.params.weight);
    return;
  }
  decays_ = Gamma(node.params.gamma);
  for (float& decay : decays_) decay = std::exp(decay);
  bias_ = Gamma(node.params.bias);
}

std::size_t PreparedLinear::Workspace(const ComputeGraph& graph, const TensorNode& node) {
  const auto rows = static_cast<std::size_t>(StateInputOf(node.op) + 1);
  return ops::GatedDeltaWorkspace(node.params.delta, graph.node(node.inputs[rows]).shape.rows) *
         sizeof(float);
}

void PreparedLinear::Launch(const NodeLaunch& launch) const {
  const TensorNode& node = launch.node();
  if (op_ == TensorOp::kCausalConv) {
    ops::CausalConv({.params = node.params.delta,
                     .states = StateRowsOf(launch),
                     .x = FromDevicePtr<const float>(launch.input(0)),
                     .weight = weight_.data(),
                     .out = FromDevicePtr<float>(launch.output),
                     .in = launch.input_node(0).shape.cols,
                     .cols = node.shape.cols,
                     .taps = node.params.weight.cols});
    return;
  }
  ops::GatedDelta({.params = node.params.delta,
                   .states = StateRowsOf(launch),
                   .x = FromDevicePtr<const float>(launch.input(0)),
                   .gates = FromDevicePtr<const float>(launch.input(1)),
                   .decays = decays_.data(),
                   .bias = bias_.data(),
                   .epsilon = node.params.scalar,
                   .out = FromDevicePtr<float>(launch.output),
                   .workspace = FromDevicePtr<float>(launch.workspace)});
}

}  // namespace culet
