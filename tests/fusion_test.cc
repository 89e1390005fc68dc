// Fusions: which are used, where their values lie, and that they give what their nodes give.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "idle_dispatch.h"

namespace culet {
namespace {

using testing::HasSubstr;

// Fuses the given groups. A fused launch spoils its outputs before it reads its inputs, so that two
// that share memory by mistake show.
class Fusing final : public IdleDispatch {
 public:
  std::vector<Fusion> offer;
  std::vector<std::string> launched;  // by Describe
  std::size_t scratch = 0;

  std::vector<std::string> fusion_names() const override { return {"pair", "other"}; }
  std::vector<Fusion> fusions(const ComputeGraph&) const override { return offer; }
  Feasibility supports(const ComputeGraph&, int) const override { return Feasibility::Ok(); }
  Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id) override {
    return reference_->prepare(graph, id);
  }
  std::size_t workspace_fusion(const ComputeGraph&, const Fusion&,
                               const PreparedNode*) const override {
    return scratch;
  }

  Status launch(const NodeLaunch& launch) override {
    launched.push_back(launch.Describe());
    return launch.fusion != nullptr ? KernelDispatch::launch(launch) : reference_->launch(launch);
  }

  Status dispatch_fusion(const NodeLaunch& launch) override {
    EXPECT_EQ(launch.id, launch.fusion->nodes.back());
    EXPECT_GE(launch.workspace_bytes, scratch);
    const ComputeGraph& graph = *launch.graph;
    std::map<int, std::vector<float>> values;
    const auto read = [&](int id, DevicePtr address) {
      const auto* from = FromDevicePtr<const float>(address);
      values[id].assign(from, from + BytesOf(graph.node(id)) / sizeof(float));
    };
    for (const Fusion::InPlace& pair : launch.fusion->in_place) {
      if (launch.value(pair.value) == launch.value(pair.input)) {
        read(pair.input, launch.value(pair.input));
      }
    }
    for (std::size_t i = 0; i < launch.outputs.size(); ++i) {
      std::memset(FromDevicePtr<void>(launch.outputs[i]), 0xff,
                  static_cast<std::size_t>(BytesOf(graph.node(launch.output_ids[i]))));
    }
    for (std::size_t i = 0; i < launch.inputs.size(); ++i) {
      if (!values.contains(launch.input_ids[i])) read(launch.input_ids[i], launch.inputs[i]);
    }
    for (const int id : launch.fusion->nodes) {
      std::vector<float> made(static_cast<std::size_t>(BytesOf(graph.node(id))) / sizeof(float));
      std::vector<DevicePtr> inputs;
      for (const int input : graph.node(id).inputs) {
        inputs.push_back(ToDevicePtr(values.at(input).data()));
      }
      NodeLaunch one;
      one.graph = &graph;
      one.id = id;
      one.inputs = inputs;
      one.input_ids = graph.node(id).inputs;
      one.output = ToDevicePtr(made.data());
      CULET_RETURN_IF_ERROR(reference_->launch(one));
      if (const DevicePtr to = launch.value(id); to != 0) {
        std::memcpy(FromDevicePtr<void>(to), made.data(), made.size() * sizeof(float));
      }
      values[id] = std::move(made);
    }
    return {};
  }

 private:
  std::unique_ptr<KernelDispatch> reference_ = MakeReferenceDispatch();
};

constexpr Shape kShape{3, 40};
constexpr std::size_t kCount = 120;

std::vector<float> Values(int seed) {
  std::vector<float> values(kCount);
  std::mt19937 random(static_cast<unsigned>(seed));
  std::uniform_real_distribution<float> uniform(-2, 2);
  for (float& value : values) value = uniform(random);
  return values;
}

// x -> a = silu(x), b = a * x, c = a + b, d = silu(c).
struct Chain {
  Chain() : memory(Values(1)), out(kCount) {
    x = graph.add_leaf(ToDevicePtr(memory.data()), kShape);
    a = graph.add_op(TensorOp::kSilu, 0, kShape, {x}, {}, "a");
    b = graph.add_op(TensorOp::kMul, 0, kShape, {a, x}, {}, "b");
    c = graph.add_op(TensorOp::kAdd, 0, kShape, {a, b}, {}, "c");
    d = graph.add_op(TensorOp::kSilu, ToDevicePtr(out.data()), kShape, {c}, {}, "d");
  }
  std::vector<float> memory, out;
  ComputeGraph graph;
  int x, a, b, c, d;
};

TEST(Fusion, ValuesInsideGetNoMemory) {
  Chain chain;
  Fusing dispatch;
  dispatch.offer = {{"pair", {chain.b, chain.c}}};
  dispatch.scratch = 1000;
  auto fused = GraphExecutor::Create(chain.graph, dispatch);
  ASSERT_TRUE(fused.ok()) << fused.status().ToString();
  EXPECT_EQ(fused->address(chain.b), 0u);
  EXPECT_EQ(fused->plan().placements[static_cast<std::size_t>(chain.b)].kind,
            Placement::Kind::kInside);
  EXPECT_THAT(fused->plan().ToString(chain.graph), HasSubstr("none"));
  EXPECT_NE(fused->address(chain.c), fused->address(chain.a));
  EXPECT_EQ(fused->n_launches(), 3);
  EXPECT_EQ(fused->workspace_bytes(), 1000u);
  EXPECT_EQ(fused->kernel_of(chain.b), "pair");
  EXPECT_EQ(fused->fusion_of(chain.b), fused->fusion_of(chain.c));
  EXPECT_EQ(fused->fusion_of(chain.a), nullptr);
  // a, x and c, each once.
  EXPECT_EQ(fused->cost_of(chain.c).bytes, 3.0 * kCount * sizeof(float));
  ASSERT_TRUE(fused->Launch().ok());
  EXPECT_THAT(dispatch.launched,
              testing::ElementsAre(HasSubstr("node 1 (a) silu"), "fusion pair of b, c",
                                   HasSubstr("node 4 (d) silu")));
  const std::vector<float> together = chain.out;
  const auto alone = MakeReferenceDispatch();
  ASSERT_TRUE(execute_graph(chain.graph, *alone).ok());
  EXPECT_EQ(together, chain.out);
}

TEST(Fusion, AnOutputTakesThePlaceThatTheFusionAllows) {
  Chain chain;
  Fusing dispatch;
  dispatch.offer = {{"pair", {chain.b, chain.c}, {{chain.c, chain.a}}}};
  auto fused = GraphExecutor::Create(chain.graph, dispatch);
  ASSERT_TRUE(fused.ok()) << fused.status().ToString();
  EXPECT_EQ(fused->address(chain.c), fused->address(chain.a));
  // A value that is read again keeps its memory.
  chain.graph.add_op(TensorOp::kAdd, 0, kShape, {chain.a, chain.d});
  fused = GraphExecutor::Create(chain.graph, dispatch);
  ASSERT_TRUE(fused.ok()) << fused.status().ToString();
  EXPECT_NE(fused->address(chain.c), fused->address(chain.a));
}

TEST(Fusion, SwitchesAndPreferences) {
  const Chain chain;
  const std::vector<Fusion> offered = {
      {"pair", {chain.a, chain.b}}, {"other", {chain.b, chain.c}}, {"other", {chain.c, chain.d}}};
  const auto names = [&](const FusionChoice& choice) {
    std::vector<std::string> names;
    const auto chosen = ChooseFusions(chain.graph, offered, choice);
    for (const Fusion& fusion : *chosen) {
      names.push_back(DescribeFusion(chain.graph, fusion));
    }
    return names;
  };
  EXPECT_THAT(names({}), testing::ElementsAre("fusion pair of a, b", "fusion other of c, d"));
  EXPECT_THAT(names({.none = false, .off = {"pair"}}),
              testing::ElementsAre("fusion other of b, c"));
  EXPECT_THAT(names({.none = false, .off = {"pair", "other"}}), testing::IsEmpty());
  EXPECT_THAT(names({.none = true, .off = {}}), testing::IsEmpty());
  Fusing dispatch;
  const auto unknown =
      GraphExecutor::Create(chain.graph, dispatch, nullptr, {.none = false, .off = {"pear"}});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.status().message(), HasSubstr("no fusion 'pear'"));
  EXPECT_THAT(unknown.status().message(), HasSubstr("pair, other"));
}

TEST(Fusion, ImpossibleOffersAreErrors) {
  const Chain chain;
  const std::pair<Fusion, const char*> cases[] = {
      {{"pair", {chain.b}}, "fewer than two nodes"},
      {{"pair", {chain.c, chain.b}}, "do not ascend"},
      {{"pair", {chain.c, 9}}, "does not exist"},
      {{"pair", {chain.x, chain.a}}, "has a leaf"},
      {{"pair", {chain.a, chain.c}}, "another node reads its values"},
      {{"pair", {chain.b, chain.c}, {{chain.d, chain.a}}}, "no node of it makes"},
      {{"pair", {chain.b, chain.c}, {{chain.c, chain.b}}}, "does not read from outside"}};
  for (const auto& [fusion, reason] : cases) {
    Fusing dispatch;
    dispatch.offer = {fusion};
    const auto result = GraphExecutor::Create(chain.graph, dispatch);
    ASSERT_FALSE(result.ok()) << reason;
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(result.status().message(), HasSubstr(reason));
    EXPECT_THAT(result.status().message(), HasSubstr("fusion pair of"));
  }
}

// A cache changes after `early` reads it; in the place of `late` it would be too late.
TEST(Fusion, WhatReadsACacheBeforeItChangesIsNotFused) {
  std::vector<float> cache(kCount), rows(40, 1.0f);
  std::vector<std::int32_t> slots = {0};
  ComputeGraph graph;
  const int leaf = graph.add_leaf(ToDevicePtr(cache.data()), kShape);
  const int row = graph.add_leaf(ToDevicePtr(rows.data()), {1, 40});
  const int slot = graph.add_leaf(ToDevicePtr(slots.data()), {1, 1}, DataType::kInt32);
  const int early = graph.add_op(TensorOp::kSilu, 0, kShape, {leaf});
  graph.add_op(TensorOp::kKvWrite, 0, kShape, {leaf, row, slot});
  const int late = graph.add_op(TensorOp::kSilu, 0, kShape, {early});
  ASSERT_TRUE(graph.Verify().ok()) << graph.Verify().ToString();
  const auto chosen = ChooseFusions(graph, {{"pair", {early, late}}});
  ASSERT_TRUE(chosen.ok());
  EXPECT_THAT(*chosen, testing::IsEmpty());
}

// Random graphs with random groups of their nodes, each against the nodes one by one.
TEST(Fusion, RandomGroupsGiveWhatTheirNodesGive) {
  std::mt19937 random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int used = 0, in_place = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const std::vector<float> x = Values(trial), y = Values(trial + 1000);
    ComputeGraph graph;
    graph.add_leaf(ToDevicePtr(x.data()), kShape);
    graph.add_leaf(ToDevicePtr(y.data()), kShape);
    constexpr TensorOp kOps[] = {TensorOp::kAdd, TensorOp::kMul, TensorOp::kSilu,
                                 TensorOp::kSwiGlu};
    const int size = 4 + below(16);
    while (graph.size() < size) {
      const TensorOp op = kOps[below(4)];
      std::vector<int> inputs;
      for (int i = 0; i < (op == TensorOp::kSilu ? 1 : 2); ++i) {
        inputs.push_back(std::max(0, graph.size() - 1 - below(5)));
      }
      graph.add_op(op, 0, kShape, inputs);
      if (below(4) == 0) graph.mark_output(graph.size() - 1);
    }
    graph.mark_output(graph.size() - 1);
    Fusing dispatch;
    for (int i = 0; i < 6; ++i) {
      Fusion fusion{"pair", {}};
      for (int id = 2 + below(size - 2); id < size; id += 1 + below(3)) {
        if (fusion.nodes.size() < 4) fusion.nodes.push_back(id);
      }
      for (const int id : fusion.nodes) {
        for (const int input : graph.node(id).inputs) {
          const bool inside = std::ranges::find(fusion.nodes, input) != fusion.nodes.end();
          if (!inside && below(2) == 0) fusion.in_place.push_back({id, input});
        }
      }
      if (CanFuse(graph, fusion).ok()) dispatch.offer.push_back(fusion);
    }
    auto fused = GraphExecutor::Create(graph, dispatch);
    auto alone = GraphExecutor::Create(graph, dispatch, nullptr, {.none = true, .off = {}});
    ASSERT_TRUE(fused.ok()) << fused.status().ToString();
    ASSERT_TRUE(alone.ok()) << alone.status().ToString();
    used += static_cast<int>(fused->fusions().size());
    for (const Fusion& fusion : fused->fusions()) {
      for (const Fusion::InPlace& pair : fusion.in_place) {
        const Placement& place = fused->plan().placements[static_cast<std::size_t>(pair.value)];
        in_place += place.kind == Placement::Kind::kAlias;
      }
    }
    EXPECT_TRUE(alone->fusions().empty());
    // Twice: the second launch finds the first one's values in the arena.
    for (int launch = 0; launch < 2; ++launch) {
      ASSERT_TRUE(fused->Launch().ok());
      ASSERT_TRUE(alone->Launch().ok());
    }
    for (int id = 2; id < size; ++id) {
      if (!graph.is_output(id)) continue;
      EXPECT_EQ(std::memcmp(FromDevicePtr<void>(fused->address(id)),
                            FromDevicePtr<void>(alone->address(id)), kCount * sizeof(float)),
                0)
          << "trial " << trial << ", node " << id << "\n"
          << fused->plan().ToString(graph);
    }
  }
  EXPECT_GT(used, 200);
  EXPECT_GT(in_place, 50);
}

// Sums and norms on the CPU: the same bits, with the sum read again or not, at sizes that fill no
// vector, for norms of whole rows and of heads.
TEST(CpuFusion, AddRmsNormHasTheBitsOfItsNodes) {
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCpuDispatch(gemm);
  for (const std::int64_t rows : {1, 3, 70}) {
    for (const std::int64_t width : {1, 7, 16, 65, 520}) {
      for (const int heads : {1, 3}) {
        for (const bool keep_sum : {false, true}) {
          const Shape shape{rows, width * heads};
          const auto count = static_cast<std::size_t>(shape.rows * shape.cols);
          std::mt19937 random(5);
          std::normal_distribution<float> normal;
          std::vector<float> x(count), y(count), gamma(static_cast<std::size_t>(width));
          for (auto* values : {&x, &y, &gamma}) {
            for (float& value : *values) value = normal(random);
          }
          ComputeGraph graph;
          const int a = graph.add_leaf(ToDevicePtr(x.data()), shape);
          const int b = graph.add_leaf(ToDevicePtr(y.data()), shape);
          const int sum = graph.add_op(TensorOp::kAdd, 0, shape, {a, b}, {}, "sum");
          OpParams params;
          params.scalar = 1e-5f;
          params.gamma.data_ptr = ToDevicePtr(gamma.data());
          params.gamma.type = DataType::kFloat32;
          params.gamma.rows = 1;
          params.gamma.cols = width;
          const int norm = graph.add_op(TensorOp::kRmsNorm, 0, shape, {sum}, params, "norm");
          graph.mark_output(norm);
          if (keep_sum) graph.mark_output(sum);
          auto fused = GraphExecutor::Create(graph, *dispatch);
          auto alone = GraphExecutor::Create(graph, *dispatch, nullptr,
                                             {.none = false, .off = {"add_rms_norm"}});
          ASSERT_TRUE(fused.ok()) << fused.status().ToString();
          ASSERT_TRUE(alone.ok()) << alone.status().ToString();
          EXPECT_EQ(fused->n_launches(), 1);
          EXPECT_EQ(fused->kernel_of(sum), "cpu/add_rms_norm");
          EXPECT_EQ(alone->n_launches(), 2);
          ASSERT_TRUE(fused->Launch().ok());
          ASSERT_TRUE(alone->Launch().ok());
          for (const int id : {sum, norm}) {
            if (id == sum && !keep_sum) {
              EXPECT_EQ(fused->address(id), 0u);
              continue;
            }
            EXPECT_EQ(std::memcmp(FromDevicePtr<void>(fused->address(id)),
                                  FromDevicePtr<void>(alone->address(id)), count * sizeof(float)),
                      0)
                << rows << " x " << width << " x " << heads;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace culet
