// The graph with a user's own dispatch: the seed's layer, refusals, memory.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/dispatch.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"

namespace culet {
namespace {

using testing::HasSubstr;

// The eight methods, each of which counts.
class Counting final : public KernelDispatch {
 public:
  std::map<std::string, int> calls;
  bool fail_on_attention = false;

  Status dispatch_mul_mat(const TensorNode& node, DevicePtr, DevicePtr, std::uint32_t m,
                          std::uint32_t n, std::uint32_t k) override {
    EXPECT_EQ(node.shape, (Shape{m, n}));
    EXPECT_EQ(k, node.params.weight.cols);
    return Count("mul_mat");
  }
  Status dispatch_rms_norm(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t, std::uint32_t,
                           float) override {
    return Count("rms_norm");
  }
  Status dispatch_add(DevicePtr, DevicePtr, DevicePtr, std::size_t) override {
    return Count("add");
  }
  Status dispatch_rope(const TensorNode&, DevicePtr, DevicePtr, std::size_t, std::uint32_t,
                       std::uint32_t) override {
    return Count("rope");
  }
  Status dispatch_attention(const TensorNode&, DevicePtr, DevicePtr, DevicePtr, DevicePtr,
                            std::uint32_t, std::size_t layer_idx) override {
    EXPECT_EQ(layer_idx, 5u);
    if (fail_on_attention) return Status(StatusCode::kInternal, "out of ink");
    return Count("attention");
  }
  Status dispatch_copy(DevicePtr, DevicePtr, std::size_t) override { return Count("copy"); }
  Status dispatch_mul(DevicePtr, DevicePtr, DevicePtr, std::size_t) override {
    return Count("mul");
  }
  Status dispatch_silu(DevicePtr, DevicePtr, std::size_t) override { return Count("silu"); }

 private:
  Status Count(const char* name) {
    ++calls[name];
    return {};
  }
};

constexpr int kTokens = 3, kHidden = 8, kInner = 12;

Weight FakeWeight(std::vector<float>& memory, int rows, int cols) {
  memory.resize(256);
  Weight weight;
  weight.data_ptr = ToDevicePtr(memory.data());
  weight.type = DataType::kFloat32;
  weight.rows = rows;
  weight.cols = cols;
  return weight;
}

// One leaf and thirteen operations, as the seed builds a layer.
class SeedLayer {
 public:
  SeedLayer() : input_(kTokens * kHidden) {
    const int x = graph.add_leaf(ToDevicePtr(input_.data()), {kTokens, kHidden});
    const int normed = Norm(x);
    const int q = MulMat(normed, kHidden), k = MulMat(normed, kHidden), v = MulMat(normed, kHidden);
    OpParams params;
    params.attention.heads = params.attention.kv_heads = 2;
    params.attention.head_dim = kHidden / 2;
    params.attention.scale = 0.5f;
    params.int_param = 5;
    const int mixed = graph.add_op(TensorOp::kSoftMax, 0, {kTokens, kHidden}, {q, k, v}, params);
    const int added = Add(x, MulMat(mixed, kHidden));
    const int second = Norm(added);
    const int gate = MulMat(second, kInner), up = MulMat(second, kInner);
    const int product = graph.add_op(TensorOp::kMul, 0, {kTokens, kInner}, {gate, up});
    last = Add(added, MulMat(product, kHidden));
  }
  ComputeGraph graph;
  int last = -1;

 private:
  int Norm(int x) {
    OpParams params;
    params.gamma = FakeWeight(memory_, 1, kHidden);
    params.scalar = 1e-5f;
    return graph.add_op(TensorOp::kRmsNorm, 0, graph.node(x).shape, {x}, params);
  }
  int MulMat(int x, int n) {
    OpParams params;
    params.weight = FakeWeight(memory_, n, static_cast<int>(graph.node(x).shape.cols));
    return graph.add_op(TensorOp::kMulMat, 0, {kTokens, n}, {x}, params, "product");
  }
  int Add(int a, int b) { return graph.add_op(TensorOp::kAdd, 0, {kTokens, kHidden}, {a, b}); }
  std::vector<float> input_, memory_;
};

TEST(Graph, SeedLayerRunsThroughAnOwnDispatch) {
  SeedLayer layer;
  EXPECT_EQ(layer.graph.n_leafs(), 1);
  EXPECT_EQ(layer.graph.n_ops(), 13);
  Counting dispatch;
  const auto result = execute_graph(layer.graph, dispatch);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->n_launches, 13);
  EXPECT_EQ(dispatch.calls,
            (std::map<std::string, int>{
                {"rms_norm", 2}, {"mul_mat", 7}, {"attention", 1}, {"add", 2}, {"mul", 1}}));
}

TEST(Graph, AFailingLaunchNamesItsNode) {
  SeedLayer layer;
  Counting dispatch;
  dispatch.fail_on_attention = true;
  const auto result = execute_graph(layer.graph, dispatch);
  EXPECT_EQ(result.status().code(), StatusCode::kInternal);
  EXPECT_THAT(result.status().message(), HasSubstr("node 5 attention [3, 8] float32 of [3, 8]"));
  EXPECT_THAT(result.status().message(), HasSubstr("out of ink"));
}

TEST(Graph, WhatADispatchLacksIsRefusedBeforeAnyLaunch) {
  SeedLayer layer;
  layer.graph.add_op(TensorOp::kSwiGlu, 0, {kTokens, kHidden}, {layer.last, layer.last});
  Counting dispatch;
  const auto result = execute_graph(layer.graph, dispatch);
  EXPECT_EQ(result.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(result.status().message(), HasSubstr("node 14 swiglu"));
  EXPECT_TRUE(dispatch.calls.empty());
}

TEST(Graph, RopeCopiesAValueThatIsReadAgain) {
  std::vector<float> x(16);
  std::vector<std::int32_t> positions(2);
  ComputeGraph graph;
  const int leaf = graph.add_leaf(ToDevicePtr(x.data()), {2, 8});
  const int at = graph.add_leaf(ToDevicePtr(positions.data()), {2, 1}, DataType::kInt32);
  const int doubled = graph.add_op(TensorOp::kAdd, 0, {2, 8}, {leaf, leaf});
  OpParams params;
  params.head_dim = 4;
  params.rope.dims = 4;
  const int turned = graph.add_op(TensorOp::kRope, 0, {2, 8}, {doubled, at}, params);
  graph.add_op(TensorOp::kAdd, 0, {2, 8}, {turned, doubled});
  Counting dispatch;
  const auto result = execute_graph(graph, dispatch);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(dispatch.calls["copy"], 1);
  EXPECT_EQ(result->n_launches, 4);
}

TEST(Graph, VerifyNamesWhatIsWrong) {
  const auto refused = [](auto change, const char* reason) {
    SeedLayer layer;
    change(layer.graph);
    const Status status = layer.graph.Verify();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(reason));
  };
  refused(
      [](ComputeGraph& g) {
        g.add_op(TensorOp::kAdd, 0, {3, 8}, {1, 99});
      },
      "input 99 is no node of the graph");
  refused(
      [](ComputeGraph& g) {
        g.add_op(TensorOp::kAdd, 0, {3, 8}, {1, 14});
      },
      "input 14 comes later");
  refused(
      [](ComputeGraph& g) {
        g.add_op(TensorOp::kAdd, 0, {3, 7}, {1, 1});
      },
      "input 0 (an operand) is [3, 8]; it must be [3, 7]");
  refused(
      [](ComputeGraph& g) {
        g.add_op(TensorOp::kMulMat, 0, {3, 8}, {1});
      },
      "the weight is missing");
  refused([](ComputeGraph& g) { g.add_op(TensorOp::kAdd, 0, {3, 8}, {1}); }, "it has 1 inputs");
  refused(
      [](ComputeGraph& g) {
        g.add_op(TensorOp::kSilu, 0, {0, 8}, {1});
      },
      "the shape is [0, 8]");
  refused(
      [](ComputeGraph& g) {
        // Over the leaf, which another node still reads.
        g.add_op(TensorOp::kSilu, g.node(0).data_ptr, {3, 8}, {1});
        g.add_op(TensorOp::kAdd, 0, {3, 8}, {0, 1});
      },
      "it writes where node 0");
}

// Values that live at the same time never share a byte, and fewer bytes than without reuse are
// used.
TEST(Graph, MemoryPlanSharesOnlyTheDead) {
  SeedLayer layer;
  const auto plan = PlanMemory(layer.graph);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_LT(plan->arena_bytes, plan->unshared_bytes);
  for (int a = 0; a < layer.graph.size(); ++a) {
    for (int b = a + 1; b < layer.graph.size(); ++b) {
      const Placement& p = plan->placements[static_cast<std::size_t>(a)];
      const Placement& q = plan->placements[static_cast<std::size_t>(b)];
      if (p.kind != Placement::Kind::kArena || q.kind != Placement::Kind::kArena) continue;
      if (p.last < q.first) continue;
      EXPECT_TRUE(p.offset + p.bytes <= q.offset || q.offset + q.bytes <= p.offset)
          << "nodes " << a << " and " << b << "\n"
          << plan->ToString(layer.graph);
    }
  }
}

}  // namespace
}  // namespace culet
