// What Verify says of routed experts that cannot be, and what they cost.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/graph.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

constexpr DevicePtr kSomewhere = 256;

Weight SomeWeight(std::int64_t rows, std::int64_t cols) {
  Weight weight;
  weight.data_ptr = kSomewhere;
  weight.type = DataType::kFloat32;
  weight.rows = rows;
  weight.cols = cols;
  return weight;
}

// Seven tokens of 16 elements, two of five experts each, products of 24.
struct Parts {
  std::int64_t tokens = 7, experts = 5;
  RoutingParams routing{.active = 2};
  Weight bias;
  OpParams product;
  Shape rows{14, 24}, sums{7, 24};
  DataType shares = DataType::kFloat32;
  bool scales_inputs = false;

  Parts() {
    auto weights = std::make_shared<ExpertWeights>();
    weights->weights.assign(5, SomeWeight(24, 16));
    product.experts = weights;
    product.routing.active = 2;
  }
  ExpertWeights& OwnExperts() {
    auto own = std::make_shared<ExpertWeights>(*product.experts);
    product.experts = own;
    return *own;
  }

  ComputeGraph Build() const {
    ComputeGraph graph;
    const int x = graph.add_leaf(kSomewhere, {tokens, 16});
    const int logits = graph.add_leaf(kSomewhere, {tokens, experts});
    const RouteNodes route = graph.add_route(logits, routing, bias, "route");
    std::vector<int> inputs{x, route.routes};
    if (scales_inputs) inputs.push_back(route.shares);
    const int made = graph.add_op(TensorOp::kExpertMulMat, 0, rows, inputs, product, "product");
    graph.add_op(TensorOp::kCombine, 0, sums, {made, route.routes, route.shares}, {}, "sums");
    return graph;
  }
};

TEST(ExpertsVerify, WhatCannotBeIsRefusedWithTheReason) {
  const std::vector<std::pair<const char*, std::function<void(Parts&)>>> cases = {
      {"route [7, 6] float32 of [7, 5] float32: 6 active experts of 5",
       [](Parts& p) { p.routing.active = 6; }},
      {"2 of 2 groups of 5 experts; groups must be of one size",
       [](Parts& p) { p.routing.groups = p.routing.kept_groups = 2; }},
      {"2 active experts of the 1 in 1 groups", [](Parts& p) { p.routing.groups = 5; }},
      {"groups of one expert have no two best",
       [](Parts& p) {
         p.routing.groups = p.routing.kept_groups = 5;
         p.routing.group_score = GroupScore::kBestTwo;
       }},
      {"the bias is [1, 4]; it must be [1, 5]", [](Parts& p) { p.bias = SomeWeight(1, 4); }},
      {"a softmax of the chosen takes no bias",
       [](Parts& p) {
         p.bias = SomeWeight(1, 5);
         p.routing.scoring = RouterScoring::kSoftmaxOfChosen;
       }},
      {"experts are missing", [](Parts& p) { p.product.experts = nullptr; }},
      {"it has 4 experts; the logits are of 5",
       [](Parts& p) { p.OwnExperts().weights.pop_back(); }},
      {"expert 3's weight is [24, 15]; these shapes need [24, 16]",
       [](Parts& p) { p.OwnExperts().weights[3].cols = 15; }},
      {"it has 1 biases for 5 experts",
       [](Parts& p) { p.OwnExperts().biases = {SomeWeight(1, 24)}; }},
      {"expert 4's bias is [1, 23]; it must be [1, 24]",
       [](Parts& p) {
         p.OwnExperts().biases.assign(5, SomeWeight(1, 24));
         p.OwnExperts().biases[4].cols = 23;
       }},
      {"a product with shares takes no biases",
       [](Parts& p) {
         p.OwnExperts().biases.assign(5, SomeWeight(1, 24));
         p.scales_inputs = true;
       }},
      {"the experts' weights have different types or scales",
       [](Parts& p) { p.OwnExperts().weights[1].type = DataType::kBfloat16; }},
      {"routing.active is 3, that of the routes 2", [](Parts& p) { p.product.routing.active = 3; }},
      {"input 0 (X) is [7, 16]; it must be [14, 16]",
       [](Parts& p) { p.product.routing.active = 0; }},
      {"it has 13 rows; 7 tokens with 2 active experts are 14", [](Parts& p) { p.rows.rows = 13; }},
      {"the shape is [7, 23]; the sums of these rows are [7, 24]",
       [](Parts& p) { p.sums.cols = 23; }},
  };
  EXPECT_TRUE(Parts().Build().Verify().ok()) << Parts().Build().Verify().ToString();
  for (const auto& [reason, change] : cases) {
    Parts parts;
    change(parts);
    const Status status = parts.Build().Verify();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << reason;
    EXPECT_THAT(status.message(), HasSubstr(reason));
  }
}

// Weights of as many experts as there are, or as the rows can go to.
TEST(ExpertsVerify, CostsCountTheExpertsThatRowsCanGoTo) {
  for (const std::int64_t tokens : {1, 2, 7}) {
    Parts parts;
    parts.tokens = tokens;
    parts.rows.rows = 2 * tokens;
    parts.sums.rows = tokens;
    const ComputeGraph graph = parts.Build();
    ASSERT_TRUE(graph.Verify().ok()) << graph.Verify().ToString();
    const int product = 4;
    const double rows = 2.0 * static_cast<double>(tokens), used = std::min(rows, 5.0);
    const double routes = 5 + 1 + 2 * rows;
    const NodeCost cost = CostOf(graph, product);
    EXPECT_EQ(cost.bytes,
              4 * (used * 24 * 16 + static_cast<double>(tokens) * 16 + rows * 24 + routes));
    EXPECT_EQ(cost.operations, 2 * rows * 24 * 16);
    // Shares and routes are made by one node.
    EXPECT_EQ(CostOf(graph, 2).bytes, 4 * (static_cast<double>(tokens) * 5 + rows + routes));
    EXPECT_EQ(CostOf(graph, 3).bytes, 0);
  }
}

}  // namespace
}  // namespace culet
