// Routed experts of the references.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "graph/float_view.h"
#include "graph/reference.h"
#include "graph/routes.h"

namespace culet {
namespace {

std::size_t Index(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

std::vector<double> SoftMax(const std::vector<double>& x) {
  const double most = *std::ranges::max_element(x);
  std::vector<double> p;
  double sum = 0;
  for (const double value : x) sum += p.emplace_back(std::exp(value - most));
  for (double& value : p) value /= sum;
  return p;
}

// The `count` largest, the first of equals first.
std::vector<int> Best(const std::vector<double>& values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](int a, int b) { return values[Index(a)] > values[Index(b)]; });
  order.resize(Index(count));
  return order;
}

// Lets the experts of the best groups alone be chosen.
void KeepGroups(const RoutingParams& routing, std::vector<double>& by) {
  const std::size_t size = by.size() / Index(routing.groups);
  std::vector<double> groups;
  for (int g = 0; g < routing.groups; ++g) {
    const auto first = by.begin() + g * static_cast<std::ptrdiff_t>(size);
    std::vector<double> sorted(first, first + static_cast<std::ptrdiff_t>(size));
    std::ranges::sort(sorted, std::greater());
    const bool sum = routing.group_score == GroupScore::kBestTwo;
    groups.push_back(static_cast<float>(sorted[0] + (sum ? sorted[1] : 0)));
  }
  const std::vector<int> kept = Best(groups, routing.kept_groups);
  for (std::size_t e = 0; e < by.size(); ++e) {
    const auto group = static_cast<int>(e / size);
    if (std::ranges::find(kept, group) == kept.end()) {
      by[e] = -std::numeric_limits<double>::infinity();
    }
  }
}

// The experts of a token, the first choice first; `shares` as many.
std::vector<int> Choose(const RoutingParams& routing, const std::vector<double>& logits,
                        const std::vector<double>& bias, std::vector<double>& shares) {
  std::vector<double> scores = logits;
  if (routing.scoring == RouterScoring::kSoftmax) scores = SoftMax(logits);
  if (routing.scoring == RouterScoring::kSigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  }
  // Logits order as their scores do, and where those are rounded to one number, too.
  const bool sums = routing.groups > 1 && routing.group_score == GroupScore::kBestTwo;
  std::vector<double> by = bias.empty() && !sums ? logits : scores;
  for (double& value : by) value = static_cast<float>(value);
  for (std::size_t e = 0; e < bias.size(); ++e) {
    by[e] = static_cast<float>(by[e]) + static_cast<float>(bias[e]);
  }
  const auto is_nan = [](double x) { return std::isnan(x); };
  if (std::ranges::any_of(by, is_nan) || std::ranges::any_of(scores, is_nan)) {
    shares.assign(Index(routing.active), std::numeric_limits<double>::quiet_NaN());
    return Best(std::vector<double>(by.size(), 0), routing.active);
  }
  if (routing.groups > 1) KeepGroups(routing, by);
  const std::vector<int> chosen = Best(by, routing.active);
  shares.clear();
  for (const int e : chosen) shares.push_back(scores[Index(e)]);
  if (routing.scoring == RouterScoring::kSoftmaxOfChosen) shares = SoftMax(shares);
  double sum = 1;
  if (routing.renormalize) {
    sum = std::max(std::accumulate(shares.begin(), shares.end(), 0.0), double{routing.least_sum});
  }
  for (double& share : shares) share = share / sum * routing.scale;
  return chosen;
}

}  // namespace

void ReferenceRoute(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const RoutingParams& routing = node.params.routing;
  const TensorNode& logits = launch.input_node(0);
  const std::int64_t tokens = logits.shape.rows, experts = logits.shape.cols;
  std::vector<double> row(Index(experts)), bias, shares;
  if (const Weight& weight = node.params.bias; weight.present()) {
    bias.resize(row.size());
    LoadRow(weight.data_ptr, weight.type, 0, experts, bias.data());
  }
  std::vector<std::vector<std::int32_t>> routes(row.size());
  for (std::int64_t token = 0; token < tokens; ++token) {
    LoadRow(launch.input(0), logits.type, token, experts, row.data());
    std::int64_t route = token * routing.active;
    for (const int e : Choose(routing, row, bias, shares)) {
      routes[Index(e)].push_back(static_cast<std::int32_t>(route++));
    }
    StoreRow(launch.output, node.type, token, routing.active, shares.data());
  }
  auto* const out = FromDevicePtr<std::int32_t>(launch.value(launch.id + 1));
  const RouteParts parts = PartsOfRoutes(out, experts, tokens * routing.active);
  std::int32_t place = 0;
  for (std::size_t e = 0; e < routes.size(); ++e) {
    parts.starts[e] = place;
    for (const std::int32_t route : routes[e]) {
      parts.routes[place] = route;
      parts.places[route] = place++;
    }
  }
  parts.starts[experts] = place;
}

void ReferenceExpertProduct(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const ExpertWeights& experts = *node.params.experts;
  const std::int64_t n = node.shape.cols, k = launch.input_node(0).shape.cols;
  const int active = node.params.routing.active;
  const RoutedInputs in = RoutedInputsOf(launch);
  const std::vector<double> x = ReferenceInput(launch);
  std::vector<double> rows, products;
  const std::int32_t* const starts = in.parts.starts + in.first;
  for (std::size_t e = 0; e < experts.weights.size(); ++e) {
    rows.clear();
    const std::int64_t first = starts[e], end = starts[e + 1];
    for (std::int64_t place = first; place < end; ++place) {
      const std::int64_t row = active > 0 ? in.parts.routes[place] / active : place;
      rows.insert(rows.end(), x.begin() + row * k, x.begin() + (row + 1) * k);
    }
    const Weight bias = experts.biases.empty() ? Weight{} : experts.biases[e];
    ReferenceProduct(rows, end - first, experts.weights[e], bias, {}, products);
    for (std::int64_t place = first; place < end; ++place) {
      double* const row = products.data() + (place - first) * n;
      const double share = in.shares != nullptr ? in.shares[in.parts.routes[place]] : 1;
      for (std::int64_t c = 0; c < n && in.shares != nullptr; ++c) row[c] *= share;
      StoreRow(launch.output, node.type, place, n, row);
    }
  }
}

void ReferenceCombine(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::int64_t n = node.shape.cols;
  const RoutedInputs in = RoutedInputsOf(launch);
  const std::int64_t active = launch.input_node(0).shape.rows / node.shape.rows;
  const std::int64_t first = in.parts.starts[in.first], end = in.parts.starts[in.first + in.count];
  std::vector<double> row(Index(n)), sum;
  for (std::int64_t token = 0; token < node.shape.rows; ++token) {
    sum.assign(row.size(), 0);
    for (std::int64_t route = token * active; route < (token + 1) * active; ++route) {
      if (in.parts.places[route] < first || in.parts.places[route] >= end) continue;
      LoadRow(launch.input(0), launch.input_node(0).type, in.parts.places[route], n, row.data());
      const double share = in.shares != nullptr ? in.shares[route] : 1;
      for (std::size_t c = 0; c < row.size(); ++c) sum[c] += share * row[c];
    }
    StoreRow(launch.output, node.type, token, n, sum.data());
  }
}

}  // namespace culet
