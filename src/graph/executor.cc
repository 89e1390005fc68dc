// GraphExecutor: a graph with its memory and its prepared nodes, launched in order.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"

namespace culet {

struct GraphExecutor::Impl {
  ComputeGraph graph;
  KernelDispatch* dispatch = nullptr;
  MemoryPlan plan;
  DeviceBuffer arena;
  DeviceBuffer workspace;
  std::vector<DevicePtr> addresses;                     // one a node
  std::vector<DevicePtr> inputs;                        // of all launches, one behind the other
  std::vector<std::unique_ptr<PreparedNode>> prepared;  // one a node
  std::vector<NodeLaunch> launches;                     // one an operation
  int n_launches = 0;

  Status Prepare(const NodeGate& gate);
  Status Place();
};

namespace {

Status WithNode(const ComputeGraph& graph, int id, const Status& status) {
  return Status(status.code(), fmt::format("{}: {}", DescribeNode(graph, id), status.message()));
}

}  // namespace

// Supports, prepares, and sizes the scratch memory.
Status GraphExecutor::Impl::Prepare(const NodeGate& gate) {
  std::size_t scratch = 0;
  prepared.resize(static_cast<std::size_t>(graph.size()));
  for (int id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op == TensorOp::kNone) continue;
    if (gate) CULET_RETURN_IF_ERROR(CaughtAs("the gate", gate));
    const Status supported = CaughtAs("supports", [&]() -> Status {
      const Feasibility ok = dispatch->supports(graph, id);
      return ok.ok() ? Status() : Status(StatusCode::kUnsupported, ok.reason());
    });
    if (!supported.ok()) return WithNode(graph, id, supported);
    auto made = CaughtAs("prepare", [&] { return dispatch->prepare(graph, id); });
    if (!made) return WithNode(graph, id, made.status());
    auto& slot = prepared[static_cast<std::size_t>(id)];
    slot = *std::move(made);
    const auto bytes = CaughtAs("workspace", [&] {
      return Result<std::size_t>(dispatch->workspace(graph, id, slot.get()));
    });
    if (!bytes) return WithNode(graph, id, bytes.status());
    scratch = std::max(scratch, *bytes);
  }
  auto buffer = DeviceBuffer::Create(dispatch->memory(), scratch);
  if (!buffer) return buffer.status();
  workspace = *std::move(buffer);
  return {};
}

// Gives every value its address and every operation its launch.
Status GraphExecutor::Impl::Place() {
  auto buffer =
      DeviceBuffer::Create(dispatch->memory(), static_cast<std::size_t>(plan.arena_bytes));
  if (!buffer) return buffer.status();
  arena = *std::move(buffer);
  std::size_t count = 0;
  for (int id = 0; id < graph.size(); ++id) {
    const TensorNode& node = graph.node(id);
    const Placement& place = plan.placements[static_cast<std::size_t>(id)];
    DevicePtr address = node.data_ptr;
    if (place.kind == Placement::Kind::kArena) {
      address = arena.get() + static_cast<DevicePtr>(place.offset);
    } else if (place.kind == Placement::Kind::kAlias) {
      address = addresses[static_cast<std::size_t>(place.alias_of)];
    }
    addresses.push_back(address);
    count += node.inputs.size();
  }
  inputs.reserve(count);  // the launches point into it
  for (int id = 0; id < graph.size(); ++id) {
    const TensorNode& node = graph.node(id);
    if (node.op == TensorOp::kNone) continue;
    NodeLaunch launch;
    launch.graph = &graph;
    launch.id = id;
    const std::size_t first = inputs.size();
    for (const int input : node.inputs) {
      inputs.push_back(addresses[static_cast<std::size_t>(input)]);
    }
    launch.inputs = std::span<const DevicePtr>(inputs).subspan(first);
    launch.output = addresses[static_cast<std::size_t>(id)];
    launch.prepared = prepared[static_cast<std::size_t>(id)].get();
    launch.workspace = workspace.get();
    launch.workspace_bytes = workspace.bytes();
    const bool copies = node.op == TensorOp::kRope && launch.output != launch.inputs[0];
    n_launches += copies ? 2 : 1;
    launches.push_back(launch);
  }
  return {};
}

GraphExecutor::GraphExecutor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GraphExecutor::~GraphExecutor() = default;
GraphExecutor::GraphExecutor(GraphExecutor&&) noexcept = default;
GraphExecutor& GraphExecutor::operator=(GraphExecutor&&) noexcept = default;

Result<GraphExecutor> GraphExecutor::Create(ComputeGraph graph, KernelDispatch& dispatch,
                                            const NodeGate& gate) {
  auto plan = PlanMemory(graph);
  if (!plan) return plan.status();
  auto impl = std::make_unique<Impl>();
  impl->graph = std::move(graph);
  impl->dispatch = &dispatch;
  impl->plan = *std::move(plan);
  CULET_RETURN_IF_ERROR(impl->Prepare(gate));
  CULET_RETURN_IF_ERROR(impl->Place());
  return GraphExecutor(std::move(impl));
}

Status GraphExecutor::Launch(cudaStream_t stream) {
  for (NodeLaunch& launch : impl_->launches) {
    launch.stream = stream;
    const Status status = CaughtAs("the dispatch", [&] { return impl_->dispatch->launch(launch); });
    if (!status.ok()) return WithNode(impl_->graph, launch.id, status);
  }
  return {};
}

Status GraphExecutor::Launch(const NodeHook& hook, cudaStream_t stream) {
  for (NodeLaunch& launch : impl_->launches) {
    launch.stream = stream;
    const Status status = CaughtAs("the hook", [&] { return hook(*impl_->dispatch, launch); });
    if (!status.ok()) return WithNode(impl_->graph, launch.id, status);
  }
  return {};
}

DevicePtr GraphExecutor::address(int id) const noexcept {
  return impl_->addresses[static_cast<std::size_t>(id)];
}
const ComputeGraph& GraphExecutor::graph() const noexcept { return impl_->graph; }
const MemoryPlan& GraphExecutor::plan() const noexcept { return impl_->plan; }
int GraphExecutor::n_launches() const noexcept { return impl_->n_launches; }
std::size_t GraphExecutor::workspace_bytes() const noexcept { return impl_->workspace.bytes(); }

std::string GraphExecutor::kernel_of(int id) const {
  const auto& prepared = impl_->prepared[static_cast<std::size_t>(id)];
  return prepared != nullptr ? prepared->kernel() : ToString(impl_->graph.node(id).op);
}

Result<GraphExecResult> execute_graph(const ComputeGraph& graph, KernelDispatch& dispatch,
                                      cudaStream_t stream) {
  auto executor = GraphExecutor::Create(graph, dispatch);
  if (!executor) return executor.status();
  GraphExecResult result;
  const auto start = std::chrono::steady_clock::now();
  CULET_RETURN_IF_ERROR(executor->Launch(stream));
  CULET_RETURN_IF_ERROR(dispatch.memory().Synchronize(stream));
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  result.elapsed_us = elapsed.count();
  result.n_launches = executor->n_launches();
  for (int id = 0; id < graph.size(); ++id) {
    const NodeCost cost = CostOf(graph, id);
    result.cost.bytes += cost.bytes;
    result.cost.operations += cost.operations;
  }
  return result;
}

}  // namespace culet
