// The states of sequences among the inputs of a CausalConv or GatedDelta.
#pragma once

#include "base/state_rows.h"
#include "culet/kernel_dispatch.h"
#include "graph/operations.h"

namespace culet {

/// Requires: a verified node.
inline StateRows StateRowsOf(const NodeLaunch& launch) noexcept {
  const int at = StateInputOf(launch.node().op);
  const auto index = [&](int i) { return FromDevicePtr<const std::int32_t>(launch.input(at + i)); };
  const Shape states = launch.input_node(at).shape;
  return {.states = FromDevicePtr<float>(launch.input(at)),
          .rows = index(1),
          .starts = index(2),
          .positions = index(3),
          .count = states.rows,
          .cols = states.cols,
          .sequences = launch.input_node(at + 1).shape.rows,
          .tokens = launch.node().shape.rows};
}

}  // namespace culet
