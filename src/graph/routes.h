// The parts of the routes that a Route makes, as culet/graph.h describes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "culet/kernel_dispatch.h"
#include "culet/tensor.h"

namespace culet {

/// Elements of the routes of `routes` choices among `experts`.
constexpr std::int64_t RoutesSize(std::int64_t experts, std::int64_t routes) noexcept {
  return experts + 1 + 2 * routes;
}

template <class T>
struct BasicRouteParts {
  T* starts = nullptr;  ///< (experts + 1)
  T* routes = nullptr;  ///< in the order of their experts
  T* places = nullptr;  ///< of each route in that order
};
using RouteParts = BasicRouteParts<std::int32_t>;
using ConstRouteParts = BasicRouteParts<const std::int32_t>;

template <class T>
BasicRouteParts<T> PartsOfRoutes(T* data, std::int64_t experts, std::int64_t routes) noexcept {
  return {data, data + experts + 1, data + experts + 1 + routes};
}

/// The index of the routes among the inputs of a verified ExpertMulMat or Combine.
inline std::size_t RoutesInput(const ComputeGraph& graph, const TensorNode& node) noexcept {
  return graph.node(node.inputs[0]).type == DataType::kFloat8_e4m3 ? 2 : 1;
}

/// The Route that such a node's routes come from.
inline const TensorNode& RouteOf(const ComputeGraph& graph, const TensorNode& node) noexcept {
  return graph.node(graph.node(node.inputs[RoutesInput(graph, node)]).inputs[0]);
}

/// The inputs that such a node has behind its rows, and their codes.
struct RoutedInputs {
  std::int64_t experts = 0;
  std::int64_t first = 0, count = 0;  ///< of these the rank's own
  ConstRouteParts parts;
  const float* shares = nullptr;  ///< null: all are 1
};
inline RoutedInputs RoutedInputsOf(const NodeLaunch& launch) noexcept {
  const std::size_t at = RoutesInput(*launch.graph, launch.node());
  const auto input = static_cast<int>(at);
  const TensorNode& route = RouteOf(*launch.graph, launch.node());
  const std::int64_t routes = route.shape.rows * route.shape.cols;
  RoutedInputs found;
  found.experts = found.count = launch.graph->node(route.inputs[0]).shape.cols;
  if (const RankParts& own = launch.node().params.parts; own.present()) {
    found.first = own.first();
    found.count = own.size_of(own.rank);
  }
  found.parts =
      PartsOfRoutes(FromDevicePtr<const std::int32_t>(launch.input(input)), found.experts, routes);
  if (launch.node().inputs.size() > at + 1) {
    found.shares = FromDevicePtr<const float>(launch.input(input + 1));
  }
  return found;
}

}  // namespace culet
