// Routers in one launch against their nodes one by one, on the same dispatch.
#pragma once

#include <fmt/format.h>

#include "fusion_fixture.h"

namespace culet {

struct RouterCase {
  std::int64_t rows, width;
  int experts, active;
  bool normalises = true, sums = true;
  DataType values = DataType::kBfloat16;  ///< of the product's input
  bool codes = false, biased = false;
  RoutingParams routing = {};
};

class Routers : public CudaFusions {
 protected:
  void SetUp() override {
    // Products that do not round their inputs: near ties then fall to one side.
    test_ = MakeTestDispatch({.round_product_inputs = false});
    if (test_.dispatch == nullptr) GTEST_SKIP() << test_.reason;
    if (on_gpu() && test_.gemm->device().arch < 900) GTEST_SKIP() << "no clusters";
  }

  void Expect(const RouterCase& c) {
    const std::string what = fmt::format("{} rows of {}, {} of {} experts, {}", c.rows, c.width,
                                         c.active, c.experts, ToString(c.values));
    ComputeGraph graph;
    const Shape shape{c.rows, c.width};
    Matrix a(c.normalises ? DataType::kFloat32 : c.values, c.rows, c.width, 71);
    if (c.rows > 2) a.Set(2 * c.width + 3, kNaN);
    int x = Leaf(graph, a);
    std::vector<int> exact;  // values whose bits are the same
    if (c.sums) {
      const int y = Leaf(graph, Matrix(DataType::kFloat32, c.rows, c.width, 72));
      x = graph.add_op(TensorOp::kAdd, 0, shape, {x, y});
      exact.push_back(x);
    }
    if (c.normalises) {
      OpParams norm;
      norm.gamma = OnDevice(Matrix(DataType::kBfloat16, 1, c.width, 73));
      norm.scalar = 1e-5f;
      x = graph.add_op(TensorOp::kRmsNorm, 0, shape, {x}, norm, "", c.values);
      if (!c.codes) exact.push_back(x);
    }
    OpParams product;
    product.weight = Joined(DataType::kBfloat16, {c.experts}, c.width, 74).front();
    if (c.biased) product.bias = OnDevice(Matrix(DataType::kFloat32, 1, c.experts, 75));
    const int logits = graph.add_op(TensorOp::kMulMat, 0, {c.rows, c.experts}, {x}, product);
    RoutingParams routing = c.routing;
    routing.active = c.active;
    const RouteNodes route = graph.add_route(logits, routing);
    exact.push_back(route.routes);
    if (c.codes) {
      const QuantizedNodes made = graph.add_quantize(x, {QuantType::kK, 128});
      exact.push_back(made.codes), exact.push_back(made.scales);
    }
    const char* const name = c.normalises ? "rms_norm_router" : "router";
    ExpectSame(graph, exact, name, what);
    ExpectSame(graph, {route.shares}, name, what, 1e-4);
  }
};

// One token, which every block normalises, and more, of which each takes some; more weights and
// logits than shared memory holds, experts that fill no product, more of them than the cluster
// takes at once.
TEST_F(Routers, ShapesOfTokensAndExperts) {
  for (const RouterCase& c :
       {RouterCase{1, 2048, 128, 8}, RouterCase{1, 264, 5, 2}, RouterCase{2, 520, 16, 4},
        RouterCase{8, 1032, 70, 8}, RouterCase{9, 264, 130, 3}, RouterCase{32, 264, 128, 8},
        RouterCase{1, 4360, 40, 4}, RouterCase{3, 4360, 300, 10}, RouterCase{1, 8, 1, 1},
        RouterCase{32, 72, 129, 2}}) {
    Expect(c);
  }
}

// Without a sum, without a norm, with codes, biases and other ways to score.
TEST_F(Routers, WhatMayBeAroundThem) {
  RoutingParams sigmoid;
  sigmoid.scoring = RouterScoring::kSigmoid, sigmoid.renormalize = true, sigmoid.scale = 2.5f;
  RoutingParams chosen;
  chosen.scoring = RouterScoring::kSoftmaxOfChosen;
  RoutingParams groups;
  groups.groups = 4, groups.kept_groups = 2, groups.group_score = GroupScore::kBestTwo;
  using enum DataType;
  for (const RouterCase& c :
       {RouterCase{1, 520, 64, 6, true, false}, RouterCase{4, 520, 64, 6, true, false, kFloat32},
        RouterCase{1, 384, 128, 8, true, true, kFloat32, true},
        RouterCase{5, 384, 24, 4, true, true, kFloat32, true},
        RouterCase{17, 136, 24, 4, true, true, kFloat32},
        RouterCase{1, 520, 32, 4, true, true, kBfloat16, false, true, chosen},
        RouterCase{1, 264, 1, 1, false, false, kBfloat16, false, false, sigmoid},
        RouterCase{6, 264, 48, 6, false, false, kFloat32, false, true, sigmoid},
        RouterCase{2, 264, 64, 6, true, true, kBfloat16, false, false, groups}}) {
    Expect(c);
  }
}

// More tokens than one launch takes, and weights that it does not.
TEST_F(Routers, OthersStayApart) {
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat32}) {
    const std::int64_t rows = type == DataType::kBfloat16 ? 33 : 2;
    ComputeGraph graph;
    const int x = Leaf(graph, Matrix(DataType::kBfloat16, rows, 64, 71));
    OpParams product;
    product.weight = OnDevice(Matrix(type, 16, 64, 74));
    const int logits = graph.add_op(TensorOp::kMulMat, 0, {rows, 16}, {x}, product);
    const RouteNodes route = graph.add_route(logits, {.active = 2});
    graph.mark_output(route.shares);
    Run(graph, {route.shares}, {}, {});
  }
}

}  // namespace culet
