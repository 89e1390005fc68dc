// Routed experts of a dispatch against the reference.
#pragma once

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/scales.h"
#include "cases.h"

namespace culet {

class Experts : public CudaGraphs {
 protected:
  void SetUp() override {
    CudaGraphs::SetUp();
    ran_ = 0;
  }
  void TearDown() override {
    if (test_.dispatch != nullptr) {
      EXPECT_GT(ran_, 0);
    }
  }

  /// Where the dispatch takes the values' types.
  void ExpectIfTaken(const ComputeGraph& graph, const std::string& what, double bound = 0) {
    for (int id = 0; id < graph.size(); ++id) {
      if (graph.node(id).op == TensorOp::kNone || IsSecond(graph.node(id).op)) continue;
      if (!test_.dispatch->supports(graph, id).ok()) return;
    }
    ++ran_;
    ExpectReference(graph, what, bound);
  }

  int ran_ = 0;
};

/// Logits of five tokens: usual ones, equal ones, some that overflow an exponential, and a NaN.
inline Matrix Logits(DataType type, int experts, unsigned seed = 51) {
  Matrix logits(type, 5, experts, seed);
  for (int e = 0; e < experts; ++e) {
    logits.Set(experts + e, 3);
    logits.Set(2 * experts + e, e % 2 == 0 ? 3000 - 8 * e : -3000);
  }
  logits.Set(4 * experts, kNaN);
  return logits;
}

/// Weights of one shape and type, with scales where they are E4M3.
struct TestExperts {
  TestExperts(DataType type, int count, std::int64_t n, std::int64_t k, unsigned seed,
              const QuantDesc& quant = {QuantType::kB, 128}, bool biased = false) {
    auto made = std::make_shared<ExpertWeights>();
    matrices.reserve(3 * static_cast<std::size_t>(count));
    for (int e = 0; e < count; ++e) {
      const unsigned from = seed + 4 * static_cast<unsigned>(e);
      matrices.emplace_back(type, n, k, from);
      made->weights.push_back(matrices.back().AsWeight());
      if (type == DataType::kFloat8_e4m3) {
        Weight& weight = made->weights.back();
        weight.quant = quant;
        matrices.emplace_back(DataType::kFloat32, ScalesOf(weight), 1, from + 1);
        weight.scales_ptr = ToDevicePtr(matrices.back().bytes.data());
        weight.scales_type = DataType::kFloat32;
      }
      if (!biased) continue;
      matrices.emplace_back(DataType::kBfloat16, 1, n, from + 2);
      made->biases.push_back(matrices.back().AsWeight());
    }
    weights = std::move(made);
  }
  std::vector<Matrix> matrices;
  std::shared_ptr<const ExpertWeights> weights;
};

inline OpParams ProductBy(const TestExperts& experts, int active, const QuantDesc& quant_a = {}) {
  OpParams params;
  params.experts = experts.weights;
  params.routing.active = active;
  params.quant_a = quant_a;
  return params;
}

// Every way of scoring, with and without a bias, groups and a sum; shares and routes.
TEST_F(Experts, Routes) {
  struct Case {
    int experts, active, groups, kept;
    GroupScore score = GroupScore::kMaximum;
  };
  for (const Case& c :
       {Case{5, 2, 1, 1}, Case{70, 8, 1, 1}, Case{3, 3, 1, 1}, Case{64, 6, 8, 3},
        Case{64, 6, 8, 3, GroupScore::kBestTwo}, Case{12, 4, 3, 2, GroupScore::kBestTwo},
        Case{300, 10, 4, 2, GroupScore::kBestTwo}, Case{1, 1, 1, 1}}) {
    for (const RouterScoring scoring :
         {RouterScoring::kSoftmax, RouterScoring::kSigmoid, RouterScoring::kSoftmaxOfChosen}) {
      for (const bool biased : {false, true}) {
        if (biased && scoring == RouterScoring::kSoftmaxOfChosen) continue;
        for (const DataType type : kValues) {
          const Matrix logits = Logits(type, c.experts, 60 + static_cast<unsigned>(scoring));
          const Matrix bias(type, 1, c.experts, 52);
          RoutingParams routing{.active = c.active,
                                .scoring = scoring,
                                .renormalize = c.experts % 2 == 0,
                                .scale = 2.5f,
                                .groups = c.groups,
                                .kept_groups = c.kept,
                                .group_score = c.score};
          const std::string what =
              fmt::format("{} of {} by {}{}", c.active, c.experts, static_cast<int>(scoring),
                          biased ? " with a bias" : "");
          ComputeGraph graph;
          const RouteNodes made =
              graph.add_route(logits.AsLeaf(graph), routing, biased ? bias.AsWeight() : Weight{});
          ExpectIfTaken(graph, what + ", routes");
          graph.add_op(TensorOp::kCopy, 0, graph.node(made.shares).shape, {made.shares});
          ExpectIfTaken(graph, what + ", shares");
        }
      }
    }
  }
}

// As a prompt has them: several rounds of a block's threads.
TEST_F(Experts, RoutesOfManyTokens) {
  const Matrix logits(DataType::kFloat32, 700, 9, 3);
  ComputeGraph graph;
  graph.add_route(logits.AsLeaf(graph), {.active = 3});
  ExpectIfTaken(graph, "routes of 700 tokens");
}

// Gathered rows, their gate, rows in order, and the sum.
TEST_F(Experts, WholeLayers) {
  struct Case {
    int experts, active;
    std::int64_t hidden, width;
    bool renormalize;
  };
  for (const Case& c : {Case{5, 2, 40, 24, true}, Case{70, 8, 32, 40, false},
                        Case{3, 3, 7, 5, false}, Case{8, 2, 272, 144, true}}) {
    std::vector<DataType> types(std::begin(kStored), std::end(kStored));
    types.push_back(DataType::kFloat8_e4m3);
    for (const DataType type : types) {
      for (const bool rows : {false, true}) {
        const bool quantised = type == DataType::kFloat8_e4m3;
        if (rows && !quantised) continue;
        const QuantDesc of_weights =
            rows ? QuantDesc{QuantType::kRow} : QuantDesc{QuantType::kB, 128};
        const QuantDesc of_inputs =
            rows ? QuantDesc{QuantType::kRow} : QuantDesc{QuantType::kK, 128};
        for (const DataType value : kValues) {
          if (value == DataType::kBfloat16 && type == DataType::kFloat16) continue;
          const TestExperts gate(type, c.experts, c.width, c.hidden, 1000, of_weights);
          const TestExperts up(type, c.experts, c.width, c.hidden, 2000, of_weights);
          const TestExperts down(type, c.experts, c.hidden, c.width, 3000, of_weights);
          const Matrix x(value, 5, c.hidden, 50), logits = Logits(value, c.experts);
          ComputeGraph graph;
          const auto product = [&](int from, const TestExperts& experts, int active, int routes,
                                   Shape shape) {
            std::vector<int> inputs{from};
            if (quantised) {
              const QuantizedNodes codes = graph.add_quantize(from, of_inputs);
              inputs = {codes.codes, codes.scales};
            }
            inputs.push_back(routes);
            return graph.add_op(TensorOp::kExpertMulMat, 0, shape, inputs,
                                ProductBy(experts, active, quantised ? of_inputs : QuantDesc{}), "",
                                value);
          };
          const int in = x.AsLeaf(graph);
          const RouteNodes route = graph.add_route(
              logits.AsLeaf(graph), {.active = c.active, .renormalize = c.renormalize});
          const Shape wide{5 * c.active, c.width};
          const int gates = product(in, gate, c.active, route.routes, wide);
          const int ups = product(in, up, c.active, route.routes, wide);
          const int inner = graph.add_op(TensorOp::kSwiGlu, 0, wide, {gates, ups}, {}, "", value);
          const int downs = product(inner, down, 0, route.routes, {5 * c.active, c.hidden});
          graph.add_op(TensorOp::kCombine, 0, {5, c.hidden}, {downs, route.routes, route.shares},
                       {}, "", value);
          // Inner values near a tie of E4M3, or of bfloat16, may fall to either side. One launch of
          // gate, up and their activation does not round between them.
          ExpectIfTaken(graph, fmt::format("{} experts of {}", c.experts, ToString(type)),
                        quantised                      ? 4e-3
                        : value == DataType::kBfloat16 ? 8e-3
                                                       : 0);
        }
      }
    }
  }
}

// Biases of experts; shares that scale the input of one expert, whose rows are then summed as they
// are.
TEST_F(Experts, BiasesAndSharesOfInputs) {
  constexpr int kExperts = 6;
  constexpr std::int64_t kHidden = 40, kWidth = 24;
  for (const DataType value : kValues) {
    const Matrix x(value, 5, kHidden, 50), logits = Logits(value, kExperts);
    for (const int active : {1, 3}) {
      const Shape wide{5 * active, kWidth};
      const TestExperts biased(DataType::kBfloat16, kExperts, kWidth, kHidden, 7, {}, true);
      ComputeGraph biases;
      const int in = x.AsLeaf(biases);
      const RouteNodes route = biases.add_route(
          logits.AsLeaf(biases), {.active = active, .scoring = RouterScoring::kSoftmaxOfChosen});
      biases.add_op(TensorOp::kExpertMulMat, 0, wide, {in, route.routes}, ProductBy(biased, active),
                    "", value);
      ExpectIfTaken(biases, "biases");

      const TestExperts plain(DataType::kBfloat16, kExperts, kWidth, kHidden, 7);
      ComputeGraph shares;
      const int from = x.AsLeaf(shares);
      const RouteNodes to = shares.add_route(
          logits.AsLeaf(shares), {.active = active, .scoring = RouterScoring::kSigmoid});
      const int rows = shares.add_op(TensorOp::kExpertMulMat, 0, wide, {from, to.routes, to.shares},
                                     ProductBy(plain, active), "", value);
      ExpectIfTaken(shares, "shares of inputs");
      shares.add_op(TensorOp::kCombine, 0, {5, kWidth}, {rows, to.routes}, {}, "", value);
      ExpectIfTaken(shares, "sums of rows with shares", value == DataType::kBfloat16 ? 2e-3 : 0);
    }
  }
}

// The order of a sum is that of the choices, so its bits are those of every run.
TEST_F(Experts, SumsRepeatBitForBit) {
  const Matrix x(DataType::kFloat32, 4 * 64, 333, 5), logits(DataType::kFloat32, 64, 16, 6);
  ComputeGraph graph;
  const int rows = x.AsLeaf(graph);
  const RouteNodes route = graph.add_route(logits.AsLeaf(graph), {.active = 4});
  graph.add_op(TensorOp::kCombine, 0, {64, 333}, {rows, route.routes, route.shares});
  ExpectIfTaken(graph, "sums");
  const auto first = GraphCopy(graph, test_.dispatch->memory()).Run(*test_.dispatch);
  EXPECT_EQ(GraphCopy(graph, test_.dispatch->memory()).Run(*test_.dispatch), first);
}

}  // namespace culet
