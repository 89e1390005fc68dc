// State that a launch keeps from one launch of the graph to the next, and what it knows of its
// neighbours.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "culet/dispatch.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "idle_dispatch.h"

namespace culet {
namespace {

// Memory of the host that comes dirty and counts what it does.
class DirtyMemory final : public DeviceMemory {
 public:
  int allocations = 0, transfers = 0;
  Result<DevicePtr> Allocate(std::size_t bytes) override {
    ++allocations;
    const auto pointer = HostMemory().Allocate(bytes);
    if (pointer.ok()) {
      auto* const at = FromDevicePtr<unsigned char>(*pointer);
      for (std::size_t i = 0; i < bytes; ++i) at[i] = 0xa5;
    }
    return pointer;
  }
  void Free(DevicePtr pointer) noexcept override { HostMemory().Free(pointer); }
  Status Upload(DevicePtr to, const void* from, std::size_t bytes, cudaStream_t stream) override {
    ++transfers;
    return HostMemory().Upload(to, from, bytes, stream);
  }
  Status Download(void* to, DevicePtr from, std::size_t bytes, cudaStream_t stream) override {
    ++transfers;
    return HostMemory().Download(to, from, bytes, stream);
  }
  Status Synchronize(cudaStream_t) override { return {}; }
  bool reads_host_memory() const noexcept override { return true; }
};

struct Counter final : PreparedNode {
  explicit Counter(std::size_t b) : bytes(b) {}
  std::size_t bytes;
  std::string kernel() const override { return "counter"; }
  std::size_t state_bytes() const override { return bytes; }
};

// Each of its launches counts in the node's state.
class Counting final : public IdleDispatch {
 public:
  DirtyMemory device;
  std::vector<int> counts;
  std::vector<int> previous, next;  // ids of the neighbours, -1 for none

  DeviceMemory& memory() override { return device; }
  Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id) override {
    const bool mul = graph.node(id).op == TensorOp::kMul;
    return std::unique_ptr<PreparedNode>(mul ? nullptr : std::make_unique<Counter>(4 + id));
  }
  Status launch(const NodeLaunch& launch) override {
    previous.push_back(launch.previous != nullptr ? launch.previous->id : -1);
    next.push_back(launch.next != nullptr ? launch.next->id : -1);
    if (launch.prepared == nullptr) {
      EXPECT_EQ(launch.state, 0u);
      return {};
    }
    EXPECT_EQ(launch.state % 256, 0u);
    auto& count = *FromDevicePtr<std::int32_t>(launch.state);
    counts.push_back(count++);
    return {};
  }
};

ComputeGraph ThreeNodes(const std::vector<float>& x) {
  ComputeGraph graph;
  const Shape shape{1, static_cast<std::int64_t>(x.size())};
  const int leaf = graph.add_leaf(ToDevicePtr(x.data()), shape);
  const int a = graph.add_op(TensorOp::kAdd, 0, shape, {leaf, leaf});
  const int b = graph.add_op(TensorOp::kMul, 0, shape, {a, leaf});
  graph.add_op(TensorOp::kSilu, 0, shape, {b});
  return graph;
}

TEST(LaunchState, StartsZeroAndIsKeptForEachNode) {
  const std::vector<float> x(64, 1.0f);
  Counting dispatch;
  auto executor = GraphExecutor::Create(ThreeNodes(x), dispatch);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  const int allocations = dispatch.device.allocations, transfers = dispatch.device.transfers;
  for (int launch = 0; launch < 3; ++launch) ASSERT_TRUE(executor->Launch().ok());
  EXPECT_EQ(dispatch.counts, (std::vector<int>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(dispatch.device.allocations, allocations);
  EXPECT_EQ(dispatch.device.transfers, transfers);
  // Another executor's is its own.
  auto other = GraphExecutor::Create(ThreeNodes(x), dispatch);
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  dispatch.counts.clear();
  ASSERT_TRUE(other->Launch().ok());
  EXPECT_EQ(dispatch.counts, (std::vector<int>{0, 0}));
}

TEST(LaunchState, ALaunchKnowsItsNeighbours) {
  const std::vector<float> x(64, 1.0f);
  Counting dispatch;
  auto made = GraphExecutor::Create(ThreeNodes(x), dispatch);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  GraphExecutor moved = *std::move(made);
  ASSERT_TRUE(moved.Launch().ok());
  EXPECT_EQ(dispatch.previous, (std::vector<int>{-1, 1, 2}));
  EXPECT_EQ(dispatch.next, (std::vector<int>{2, 3, -1}));
}

}  // namespace
}  // namespace culet
