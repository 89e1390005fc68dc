// Operations that pick, store and choose, as nodes on every dispatch: what lies outside its range,
// what is equal, what rounds.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"

namespace culet {
namespace {

enum class Backend { kCpu, kReference };

class GraphOps : public testing::TestWithParam<Backend> {
 protected:
  void Run(const ComputeGraph& graph) {
    const auto result = execute_graph(graph, *dispatch_);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
  }
  static int Indices(ComputeGraph& graph, const std::vector<std::int32_t>& values) {
    return graph.add_leaf(ToDevicePtr(values.data()), {static_cast<std::int64_t>(values.size()), 1},
                          DataType::kInt32);
  }

  Gemm gemm_ = *Gemm::Create();
  std::unique_ptr<KernelDispatch> dispatch_ =
      GetParam() == Backend::kCpu ? MakeCpuDispatch(gemm_) : MakeReferenceDispatch();
};

constexpr std::int32_t kFar = std::numeric_limits<std::int32_t>::max();

TEST_P(GraphOps, RowsOutsideTheTableAreNaN) {
  constexpr std::int64_t kRows = 5, kCols = 19;
  const std::vector<std::int32_t> ids = {4, -1, 0, 5, kFar, -kFar - 1, 2};
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
    std::vector<std::byte> table(kRows * kCols * SizeOf(type));
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      StoreFromDouble(table.data(), type, i, static_cast<double>(i));
    }
    for (const bool embedding : {true, false}) {
      if (!embedding && type != DataType::kFloat32) continue;
      std::vector<float> out(ids.size() * kCols + 1, -7);
      const Shape shape{static_cast<std::int64_t>(ids.size()), kCols};
      ComputeGraph graph;
      const int picked = Indices(graph, ids);
      if (embedding) {
        OpParams params;
        params.weight.data_ptr = ToDevicePtr(table.data());
        params.weight.type = type;
        params.weight.rows = kRows;
        params.weight.cols = kCols;
        graph.add_op(TensorOp::kEmbedding, ToDevicePtr(out.data()), shape, {picked}, params);
      } else {
        const int from = graph.add_leaf(ToDevicePtr(table.data()), {kRows, kCols});
        graph.add_op(TensorOp::kGatherRows, ToDevicePtr(out.data()), shape, {from, picked});
      }
      Run(graph);
      EXPECT_EQ(out.back(), -7);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        for (std::size_t c = 0; c < kCols; ++c) {
          const float value = out[i * kCols + c];
          if (ids[i] >= 0 && ids[i] < kRows) {
            ASSERT_EQ(value, static_cast<float>(ids[i] * kCols + static_cast<std::int64_t>(c)));
          } else {
            ASSERT_TRUE(std::isnan(value)) << "id " << ids[i];
          }
        }
      }
    }
  }
}

TEST_P(GraphOps, SlotsOutsideTheCacheAreNotWritten) {
  constexpr std::int64_t kSlots = 6, kCols = 21;
  const std::vector<std::int32_t> slots = {3, -1, 5, 6, kFar, -kFar - 1, 0};
  std::vector<float> rows(slots.size() * kCols);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = 1 + static_cast<float>(i) / 1024;
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
    constexpr std::int64_t kGuard = 64;
    std::vector<std::byte> memory((kSlots * kCols + 2 * kGuard) * SizeOf(type));
    for (std::int64_t i = 0; i < kSlots * kCols + 2 * kGuard; ++i) {
      StoreFromDouble(memory.data(), type, i, -8);
    }
    ComputeGraph graph;
    const Shape shape{kSlots, kCols};
    const int cache =
        graph.add_leaf(ToDevicePtr(memory.data() + kGuard * SizeOf(type)), shape, type);
    const int from =
        graph.add_leaf(ToDevicePtr(rows.data()), {static_cast<std::int64_t>(slots.size()), kCols});
    graph.add_op(TensorOp::kKvWrite, 0, shape, {cache, from, Indices(graph, slots)}, {}, "write",
                 type);
    Run(graph);
    for (std::int64_t i = -kGuard; i < kSlots * kCols + kGuard; ++i) {
      double expected = -8;
      if (i >= 0 && i < kSlots * kCols) {
        const auto at = std::ranges::find(slots, static_cast<std::int32_t>(i / kCols));
        if (at != slots.end()) {
          expected = RoundTo(
              type, rows[static_cast<std::size_t>((at - slots.begin()) * kCols + i % kCols)]);
        }
      }
      ASSERT_EQ(LoadAsDouble(memory.data(), type, i + kGuard), expected)
          << ToString(type) << " " << i;
    }
  }
}

TEST_P(GraphOps, CastRoundsOnce) {
  // Ties, overflow, subnormal numbers of both 16-bit types.
  std::vector<float> x = {
      1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 65519,  65520, -1e38f, 0x1p-24f,
      0x1.8p-24f,  0x1p-25f,        -0.0f,        0x1p-133f,        3e-39f, 0.1f};
  for (int i = 0; i < 40; ++i) x.push_back(std::sin(static_cast<float>(i)) * 100);
  const Shape shape{1, static_cast<std::int64_t>(x.size())};
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    std::vector<std::uint16_t> narrow(x.size() + 1, 0x5a5a);
    std::vector<float> wide(x.size() + 1, -7);
    ComputeGraph graph;
    const int from = graph.add_leaf(ToDevicePtr(x.data()), shape);
    const int cast =
        graph.add_op(TensorOp::kCast, ToDevicePtr(narrow.data()), shape, {from}, {}, "", type);
    graph.add_op(TensorOp::kCast, ToDevicePtr(wide.data()), shape, {cast});
    Run(graph);
    EXPECT_EQ(narrow.back(), 0x5a5a);
    EXPECT_EQ(wide.back(), -7);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(wide[i], static_cast<float>(RoundTo(type, x[i])))
          << ToString(type) << " of " << x[i];
    }
  }
}

// Experts that scale: expert e gives (e + 1) silu(x) x, so the output says who was chosen and with
// which share.
TEST_P(GraphOps, ExpertsChosenByTheLargestLogits) {
  constexpr int kExperts = 5, kWidth = 4;
  std::vector<float> identity(kWidth * kWidth, 0.0f);
  for (std::size_t i = 0; i < kWidth; ++i) identity[i * kWidth + i] = 1;
  std::vector<std::vector<float>> downs;
  auto all_same = std::make_shared<ExpertWeights>(), each = std::make_shared<ExpertWeights>();
  const auto weight = [&](const std::vector<float>& values) {
    Weight w;
    w.data_ptr = ToDevicePtr(values.data());
    w.type = DataType::kFloat32;
    w.rows = w.cols = kWidth;
    return w;
  };
  for (int e = 0; e < kExperts; ++e) {
    downs.push_back(identity);
    for (float& value : downs.back()) value *= static_cast<float>(e + 1);
    all_same->weights.push_back(weight(identity));
    each->weights.push_back(weight(downs.back()));
  }
  // Clear; equal ones, of which the first come first; huge ones that overflow without their
  // maximum.
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f, 3, 3, 3, 3, 3, 3000, -3000, 2999, 0, 2998};
  const std::vector<std::vector<int>> chosen = {{2, 1}, {0, 1}, {0, 2}};
  const std::vector<float> x = {1, 2, -1, 0.5f, 1, 2, -1, 0.5f, 1, 2, -1, 0.5f};
  for (const bool renormalize : {true, false}) {
    std::vector<float> out(x.size() + 1, -7);
    ComputeGraph graph;
    const int in = graph.add_leaf(ToDevicePtr(x.data()), {3, kWidth});
    const int router = graph.add_leaf(ToDevicePtr(logits.data()), {3, kExperts});
    const RouteNodes route = graph.add_route(router, {.active = 2, .renormalize = renormalize});
    const Shape routed{6, kWidth};
    OpParams params;
    params.experts = all_same;
    params.routing.active = 2;
    const int gate = graph.add_op(TensorOp::kExpertMulMat, 0, routed, {in, route.routes}, params);
    const int inner = graph.add_op(TensorOp::kSwiGlu, 0, routed, {gate, gate});
    params.experts = each;
    params.routing.active = 0;
    const int down =
        graph.add_op(TensorOp::kExpertMulMat, 0, routed, {inner, route.routes}, params);
    graph.add_op(TensorOp::kCombine, ToDevicePtr(out.data()), {3, kWidth},
                 {down, route.routes, route.shares});
    Run(graph);
    EXPECT_EQ(out.back(), -7);
    for (std::size_t row = 0; row < 3; ++row) {
      double all = 0, those = 0, factor = 0;
      const float* const l = logits.data() + row * kExperts;
      for (int e = 0; e < kExperts; ++e)
        all += std::exp(static_cast<double>(l[e]) - l[chosen[row][0]]);
      for (const int e : chosen[row]) {
        const double p = std::exp(static_cast<double>(l[e]) - l[chosen[row][0]]);
        those += p;
        factor += p * (e + 1);
      }
      factor /= renormalize ? those : all;
      for (std::size_t c = 0; c < kWidth; ++c) {
        const double value = x[row * kWidth + c];
        const double expected = factor * value * value / (1 + std::exp(-value));
        EXPECT_NEAR(out[row * kWidth + c], expected, 1e-6 * std::fabs(expected)) << row << " " << c;
      }
    }
  }
}

// What a routing chooses of one token's logits, by hand.
struct RoutingCase {
  const char* what;
  std::vector<float> logits, bias;
  RoutingParams routing;
  std::vector<int> chosen;
  std::vector<double> shares;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<RoutingCase> RoutingCases() {
  const double e = std::exp(1.0);
  return {
      {"a bias changes the choice, not the shares",
       {0, 1, 2, 3},
       {5, 0, 0, 0},
       {.active = 2, .scoring = RouterScoring::kSigmoid},
       {0, 3},
       {0.5, Sigmoid(3)}},
      {"shares add up to the scale",
       {0, 1, 2, 3},
       {},
       {.active = 2, .scoring = RouterScoring::kSigmoid, .renormalize = true, .scale = 2.5f},
       {3, 2},
       {2.5 * Sigmoid(3) / (Sigmoid(3) + Sigmoid(2)),
        2.5 * Sigmoid(2) / (Sigmoid(3) + Sigmoid(2))}},
      {"a softmax of the chosen",
       {1, 7, 0, 2},
       {},
       {.active = 2, .scoring = RouterScoring::kSoftmaxOfChosen},
       {1, 3},
       {1 / (1 + std::pow(e, -5)), 1 / (1 + std::pow(e, 5))}},
      {"the group of the best expert",
       {9, -9, 4, 4, 3, 3},
       {},
       {.active = 2,
        .scoring = RouterScoring::kSigmoid,
        .groups = 3,
        .group_score = GroupScore::kMaximum},
       {0, 1},
       {Sigmoid(9), Sigmoid(-9)}},
      {"the group of the two best experts",
       {9, -9, 4, 4, 3, 3},
       {},
       {.active = 2,
        .scoring = RouterScoring::kSigmoid,
        .groups = 3,
        .group_score = GroupScore::kBestTwo},
       {2, 3},
       {Sigmoid(4), Sigmoid(4)}},
      {"groups are scored with the bias",
       {9, -9, 4, 4, 3, 3},
       {0, 0, 0, 0, 1, 1},
       {.active = 1,
        .scoring = RouterScoring::kSigmoid,
        .groups = 3,
        .group_score = GroupScore::kBestTwo},
       {4},
       {Sigmoid(3)}},
      {"a sum that is too small",
       {-200, -200, -200},
       {},
       {.active = 2, .scoring = RouterScoring::kSigmoid, .renormalize = true},
       {0, 1},
       {0, 0}},
      {"a least sum",
       {0, 0, 0},
       {},
       {.active = 2, .scoring = RouterScoring::kSigmoid, .renormalize = true, .least_sum = 4},
       {0, 1},
       {0.125, 0.125}},
  };
}

TEST_P(GraphOps, RoutesByHand) {
  for (const RoutingCase& c : RoutingCases()) {
    const auto experts = static_cast<std::int64_t>(c.logits.size());
    Weight bias;
    if (!c.bias.empty()) {
      bias.data_ptr = ToDevicePtr(c.bias.data());
      bias.type = DataType::kFloat32;
      bias.rows = 1;
      bias.cols = experts;
    }
    const auto active = static_cast<std::size_t>(c.routing.active);
    std::vector<float> shares(active);
    std::vector<std::int32_t> routes(c.logits.size() + 1 + 2 * active);
    ComputeGraph graph;
    const int logits = graph.add_leaf(ToDevicePtr(c.logits.data()), {1, experts});
    const RouteNodes made = graph.add_route(logits, c.routing, bias);
    const auto copy = [&](int id, void* to) {
      const TensorNode& node = graph.node(id);
      graph.add_op(TensorOp::kCopy, ToDevicePtr(to), node.shape, {id}, {}, "", node.type);
    };
    copy(made.shares, shares.data());
    copy(made.routes, routes.data());
    Run(graph);
    for (std::size_t a = 0; a < active; ++a) {
      EXPECT_NEAR(shares[a], c.shares[a], 1e-6) << c.what;
      // Where the a-th choice lies in the order of experts is behind the start of its expert.
      const std::int32_t place = routes[c.logits.size() + 1 + active + a];
      const auto chosen = static_cast<std::size_t>(c.chosen[a]);
      EXPECT_EQ(routes[chosen], place) << c.what;
      EXPECT_EQ(routes[chosen + 1], place + 1) << c.what;
      EXPECT_EQ(routes[c.logits.size() + 1 + static_cast<std::size_t>(place)],
                static_cast<std::int32_t>(a))
          << c.what;
    }
  }
}

TEST_P(GraphOps, ClampedSwiGluClampsBothAndAddsOne) {
  const std::vector<float> gate = {0.5f, 9, -9, 1, 1}, up = {0.25f, 1, 1, 9, -9};
  std::vector<float> out(gate.size());
  ComputeGraph graph;
  const Shape shape{1, static_cast<std::int64_t>(gate.size())};
  const int a = graph.add_leaf(ToDevicePtr(gate.data()), shape);
  const int b = graph.add_leaf(ToDevicePtr(up.data()), shape);
  OpParams params;
  params.scalar = 7;
  params.slope = 1.702f;
  graph.add_op(TensorOp::kClampedSwiGlu, ToDevicePtr(out.data()), shape, {a, b}, params);
  Run(graph);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double g = std::min(gate[i], 7.0f), u = std::clamp(up[i], -7.0f, 7.0f);
    const double expected = g * Sigmoid(1.702 * g) * (u + 1);
    EXPECT_NEAR(out[i], expected, 1e-6 * std::fabs(expected)) << i;
  }
}

std::string NameOf(const testing::TestParamInfo<Backend>& info) {
  constexpr const char* kNames[] = {"cpu", "reference"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, GraphOps, testing::Values(Backend::kCpu, Backend::kReference),
                         NameOf);

}  // namespace
}  // namespace culet
