// What ComputeGraph::Verify demands of routed experts.
#include <cmath>

#include <fmt/format.h>

#include "graph/node_rules.h"
#include "graph/routes.h"

namespace culet {

std::string NodeRules::Route() const {
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  if (node_.type != DataType::kFloat32) return "the value must be float32";
  const RoutingParams& routing = params_.routing;
  const std::int64_t experts = In(0).shape.cols;
  if (routing.active < 1 || routing.active > experts) {
    return fmt::format("{} active experts of {}", routing.active, experts);
  }
  if (auto r = InputIs(0, {node_.shape.rows, experts}, "logits"); !r.empty()) return r;
  if (node_.shape.cols != routing.active) {
    return fmt::format("the value has {} columns; {} active experts need as many", node_.shape.cols,
                       routing.active);
  }
  if (!std::isfinite(routing.scale) || !(routing.least_sum >= 0)) {
    return fmt::format("scale is {}, least_sum {}; finite, and 0 or more", routing.scale,
                       routing.least_sum);
  }
  if (auto r = Groups(experts); !r.empty()) return r;
  if (params_.bias.present()) {
    if (routing.scoring == RouterScoring::kSoftmaxOfChosen) {
      return "a softmax of the chosen takes no bias; add it to the logits";
    }
    if (auto r = Vector("the bias", params_.bias, experts); !r.empty()) return r;
  }
  if (id_ + 1 == graph_.size() || graph_.node(id_ + 1).op != TensorOp::kRoutes) {
    return "its routes must come right behind it; use add_route";
  }
  return {};
}

std::string NodeRules::Groups(std::int64_t experts) const {
  const RoutingParams& routing = params_.routing;
  const int groups = routing.groups;
  if (groups < 1 || experts % groups != 0 || routing.kept_groups < 1 ||
      routing.kept_groups > groups) {
    return fmt::format("{} of {} groups of {} experts; groups must be of one size",
                       routing.kept_groups, groups, experts);
  }
  if (groups == 1) return {};
  const std::int64_t size = experts / groups;
  if (routing.active > routing.kept_groups * size) {
    return fmt::format("{} active experts of the {} in {} groups", routing.active,
                       routing.kept_groups * size, routing.kept_groups);
  }
  if (routing.group_score == GroupScore::kBestTwo && size < 2) {
    return "groups of one expert have no two best";
  }
  return {};
}

std::string NodeRules::Routes() const {
  if (node_.inputs[0] != id_ - 1 || In(0).op != TensorOp::kRoute) {
    return "its input must be the route right before it; use add_route";
  }
  if (node_.type != DataType::kInt32) return "the value must be int32";
  if (params_.routing != In(0).params.routing) return "routing differs from its route's";
  const std::int64_t experts = graph_.node(In(0).inputs[0]).shape.cols;
  const Shape shape{1, RoutesSize(experts, In(0).shape.rows * In(0).shape.cols)};
  if (node_.shape == shape) return {};
  return fmt::format("the shape is [{}, {}]; the routes are [1, {}]", node_.shape.rows,
                     node_.shape.cols, shape.cols);
}

// Inputs from `first` on: routes, and maybe their shares.
std::string NodeRules::Routed(std::size_t first, std::int64_t routes) const {
  const std::size_t count = node_.inputs.size();
  if (count != first + 1 && count != first + 2) {
    return fmt::format("it has {} inputs; it takes {}, or these and shares", count, first + 1);
  }
  if (In(first).op != TensorOp::kRoutes) return fmt::format("input {} must be a routes", first);
  const TensorNode& route = graph_.node(In(first).inputs[0]);
  if (route.shape.rows * route.shape.cols != routes) {
    return fmt::format("it has {} rows; {} tokens with {} active experts are {}", routes,
                       route.shape.rows, route.shape.cols, route.shape.rows * route.shape.cols);
  }
  if (count == first + 1 || node_.inputs[first + 1] == In(first).inputs[0]) return {};
  return fmt::format("input {} must be the shares of these routes", first + 1);
}

std::string NodeRules::ExpertMulMat() const {
  if (node_.inputs.empty()) return "it has no inputs; it takes X and routes";
  if (auto r = IsFloatValue(); !r.empty()) return r;
  const bool codes = In(0).type == DataType::kFloat8_e4m3;
  const std::size_t first = codes ? 2 : 1;
  if (codes && node_.inputs.size() < 2) return "it has no scales; use add_quantize";
  if (codes) {
    if (auto r = CheckScales(1, In(0).shape); !r.empty()) return r;
  } else if (auto r = InputIsFloat(0); !r.empty()) {
    return r;
  }
  if (auto r = Routed(first, node_.shape.rows); !r.empty()) return r;
  const TensorNode& route = graph_.node(In(first).inputs[0]);
  const int active = params_.routing.active;
  if (active != 0 && active != route.params.routing.active) {
    return fmt::format("routing.active is {}, that of the routes {}; 0 where X is not gathered",
                       active, route.params.routing.active);
  }
  const std::int64_t rows = active != 0 ? route.shape.rows : node_.shape.rows;
  if (auto r = InputIs(0, {rows, In(0).shape.cols}, "X"); !r.empty()) return r;
  std::int64_t count = graph_.node(route.inputs[0]).shape.cols;
  if (auto r = PartOf(count); !r.empty()) return r;
  if (const RankParts& parts = params_.parts; parts.present()) count = parts.size_of(parts.rank);
  return Experts(count, codes, node_.inputs.size() > first + 1);
}

// Of so many experts.
std::string NodeRules::PartOf(std::int64_t experts) const {
  const RankParts& parts = params_.parts;
  if (!parts.present()) return {};
  if (auto r = Parts(); !r.empty()) return r;
  if (parts.all() == experts) return {};
  return fmt::format("parts has {} experts; the logits are of {}", parts.all(), experts);
}

std::string NodeRules::Experts(std::int64_t count, bool codes, bool shared) const {
  if (params_.experts == nullptr) return "experts are missing";
  const auto& [weights, biases] = *params_.experts;
  if (static_cast<std::int64_t>(weights.size()) != count) {
    return fmt::format("it has {} experts; the logits are of {}{}", weights.size(), count,
                       params_.parts.present() ? " for this rank" : "");
  }
  if (!biases.empty() && biases.size() != weights.size()) {
    return fmt::format("it has {} biases for {} experts", biases.size(), weights.size());
  }
  if (!biases.empty() && shared) return "a product with shares takes no biases";
  const Weight& first = weights.front();
  const bool of_codes = first.type == DataType::kFloat8_e4m3 && params_.quant_a != QuantDesc{};
  if (codes != of_codes) {
    return fmt::format(
        "input 0 is {}, the weights {}; those of float8_e4m3 take a quantize's where quant_a "
        "says "
        "how",
        ToString(In(0).type), ToString(first.type));
  }
  for (std::size_t e = 0; e < weights.size(); ++e) {
    const std::string what = fmt::format("expert {}'s weight", e);
    if (auto r =
            WhyNotWeight(what.c_str(), weights[e], node_.shape.cols, In(0).shape.cols, params_);
        !r.empty()) {
      return r;
    }
    if (weights[e].type != first.type || weights[e].quant != first.quant ||
        weights[e].scales_type != first.scales_type) {
      return "the experts' weights have different types or scales";
    }
    if (weights[e].order_ptr != 0) return what + "'s columns have an order; they may not";
    if (biases.empty()) continue;
    const std::string bias = fmt::format("expert {}'s bias", e);
    if (auto r = Vector(bias.c_str(), biases[e], node_.shape.cols); !r.empty()) return r;
    if (biases[e].type != biases.front().type) return "the experts' biases have different types";
  }
  return {};
}

std::string NodeRules::Combine() const {
  if (node_.inputs.empty()) return "it has no inputs; it takes X and routes";
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  if (auto r = Routed(1, In(0).shape.rows); !r.empty()) return r;
  const TensorNode& route = graph_.node(In(1).inputs[0]);
  if (auto r = PartOf(graph_.node(route.inputs[0]).shape.cols); !r.empty()) return r;
  const Shape shape{route.shape.rows, In(0).shape.cols};
  if (node_.shape == shape) return {};
  return fmt::format("the shape is [{}, {}]; the sums of these rows are [{}, {}]", node_.shape.rows,
                     node_.shape.cols, shape.rows, shape.cols);
}

}  // namespace culet
