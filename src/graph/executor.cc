// GraphExecutor: a graph with its fusions, its memory and its prepared nodes, launched in order.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/trace.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "graph/cost.h"
#include "graph/exchange_plan.h"
#include "graph/schedule.h"

namespace culet {

struct GraphExecutor::Impl {
  ComputeGraph graph;
  KernelDispatch* dispatch = nullptr;
  std::vector<Fusion> fusions;
  std::optional<Schedule> schedule;  // points to the graph and the fusions
  MemoryPlan plan;
  DeviceBuffer arena;
  DeviceBuffer workspace;
  DeviceBuffer state;
  std::vector<DevicePtr> addresses;                     // one a node
  std::vector<DevicePtr> values;                        // what the launches read and make
  std::vector<std::unique_ptr<PreparedNode>> prepared;  // one a step
  std::vector<NodeLaunch> launches;                     // one a step
  std::vector<int> step_of;                             // one a node; -1 for a leaf
  int n_launches = 0;
  std::unique_ptr<RecordedLaunches> recorded;  // goes before what it reads
  std::string why_not_recorded = "the second launch on a dispatch that records does it";
  bool may_record = true, launched = false, tried = false;

  Status Complete(const NodeGate& gate, const FusionChoice& choice);
  Status Choose(const FusionChoice& choice);
  Status Prepare(const NodeGate& gate);
  Status PrepareStep(const GraphStep& step, std::size_t& scratch);
  Status Place();
  Status PlaceState();
  void Record();
  std::string KernelOf(std::size_t step) const;
  /// "layers.0.q cpu_simd/skinny/m8n3".
  std::string RangeName(std::size_t step) const;
  Status LaunchEach(cudaStream_t stream, const NodeGate& gate);
  /// The first `count` launches.
  template <class Call>
  Status LaunchFirst(std::size_t count, const char* who, const Call& call, cudaStream_t stream);
};

namespace {

Status WithStep(const ComputeGraph& graph, const GraphStep& step, const Status& status) {
  const std::string what =
      step.fusion != nullptr ? DescribeFusion(graph, *step.fusion) : DescribeNode(graph, step.id);
  return Status(status.code(), fmt::format("{}: {}", what, status.message()));
}

}  // namespace

// The fusions, the steps and the places of the values.
Status GraphExecutor::Impl::Choose(const FusionChoice& choice) {
  CULET_RETURN_IF_ERROR(graph.Verify());
  std::vector<std::string> known;
  std::vector<Fusion> offered;
  CULET_RETURN_IF_ERROR(CaughtAs("fusions", [&]() -> Status {
    known = dispatch->fusion_names();
    offered = dispatch->fusions(graph);
    return {};
  }));
  for (const std::string& name : choice.off) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("there is no fusion '{}' to switch off; this dispatch has {}", name,
                              known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
  }
  auto chosen = ChooseFusions(graph, std::move(offered), choice);
  if (!chosen) return chosen.status();
  fusions = *std::move(chosen);
  schedule.emplace(graph, fusions);
  auto planned = PlanMemory(graph, fusions);
  if (!planned) return planned.status();
  plan = *std::move(planned);
  return {};
}

Status GraphExecutor::Impl::PrepareStep(const GraphStep& step, std::size_t& scratch) {
  if (step.fusion == nullptr) {
    CULET_RETURN_IF_ERROR(CaughtAs("supports", [&]() -> Status {
      const Feasibility ok = dispatch->supports(graph, step.id);
      return ok.ok() ? Status() : Status(StatusCode::kUnsupported, ok.reason());
    }));
  }
  auto made = CaughtAs("prepare", [&] {
    return step.fusion != nullptr ? dispatch->prepare_fusion(graph, *step.fusion)
                                  : dispatch->prepare(graph, step.id);
  });
  if (!made) return made.status();
  prepared.push_back(*std::move(made));
  const PreparedNode* node = prepared.back().get();
  const auto bytes = CaughtAs("workspace", [&] {
    return Result<std::size_t>(step.fusion != nullptr
                                   ? dispatch->workspace_fusion(graph, *step.fusion, node)
                                   : dispatch->workspace(graph, step.id, node));
  });
  if (!bytes) return bytes.status();
  scratch = std::max(scratch, *bytes);
  return {};
}

Status GraphExecutor::Impl::Complete(const NodeGate& gate, const FusionChoice& choice) {
  CULET_RETURN_IF_ERROR(Choose(choice));
  CULET_RETURN_IF_ERROR(Prepare(gate));
  CULET_RETURN_IF_ERROR(Place());
  return PlaceState();
}

// Supports, prepares, and sizes the scratch memory.
Status GraphExecutor::Impl::Prepare(const NodeGate& gate) {
  std::size_t scratch = 0;
  for (const GraphStep& step : schedule->steps()) {
    if (gate) CULET_RETURN_IF_ERROR(CaughtAs("the gate", gate));
    const Status status = PrepareStep(step, scratch);
    if (!status.ok()) return WithStep(graph, step, status);
  }
  auto buffer = DeviceBuffer::Create(dispatch->memory(), scratch);
  if (!buffer) return buffer.status();
  workspace = *std::move(buffer);
  return {};
}

// Gives every value its address and every step its launch.
Status GraphExecutor::Impl::Place() {
  auto buffer =
      DeviceBuffer::Create(dispatch->memory(), static_cast<std::size_t>(plan.arena_bytes));
  if (!buffer) return buffer.status();
  arena = *std::move(buffer);
  addresses.resize(static_cast<std::size_t>(graph.size()));
  for (int id = 0; id < graph.size(); ++id) {
    const Placement& place = plan.placements[static_cast<std::size_t>(id)];
    DevicePtr& address = addresses[static_cast<std::size_t>(id)];
    if (place.kind == Placement::Kind::kArena) {
      address = arena.get() + static_cast<DevicePtr>(place.offset);
    } else if (place.kind == Placement::Kind::kExternal) {
      address = graph.node(id).data_ptr;
    }
  }
  std::size_t count = 0;
  for (const GraphStep& step : schedule->steps()) {
    count += step.inputs.size() + step.outputs.size();
    // Reused memory already has its address, since an earlier step made it.
    for (const int id : step.outputs) {
      const Placement& place = plan.placements[static_cast<std::size_t>(id)];
      if (place.kind != Placement::Kind::kAlias) continue;
      addresses[static_cast<std::size_t>(id)] = addresses[static_cast<std::size_t>(place.alias_of)];
    }
  }
  values.reserve(count);  // the launches point into it
  const auto addresses_of = [&](const std::vector<int>& ids) {
    const std::size_t first = values.size();
    for (const int id : ids) values.push_back(addresses[static_cast<std::size_t>(id)]);
    return std::span<const DevicePtr>(values).subspan(first);
  };
  step_of.assign(static_cast<std::size_t>(graph.size()), -1);
  for (const GraphStep& step : schedule->steps()) {
    for (const int id : step.nodes) {
      step_of[static_cast<std::size_t>(id)] = static_cast<int>(launches.size());
    }
    NodeLaunch launch;
    launch.graph = &graph;
    launch.id = step.id;
    launch.fusion = step.fusion;
    launch.inputs = addresses_of(step.inputs);
    launch.input_ids = step.inputs;
    launch.outputs = addresses_of(step.outputs);
    launch.output_ids = step.outputs;
    launch.output = addresses[static_cast<std::size_t>(step.id)];
    launch.prepared = prepared[launches.size()].get();
    launch.workspace = workspace.get();
    launch.workspace_bytes = workspace.bytes();
    const bool copies = step.fusion == nullptr && launch.node().op == TensorOp::kRope &&
                        launch.output != launch.inputs[0];
    n_launches += copies ? 2 : 1;
    launches.push_back(launch);
  }
  for (std::size_t i = 1; i < launches.size(); ++i) {
    launches[i].previous = &launches[i - 1];
    launches[i - 1].next = &launches[i];
  }
  return {};
}

// The memory that launches keep, zero at first.
Status GraphExecutor::Impl::PlaceState() {
  constexpr std::size_t kAlignment = 256;
  const auto padded = [](const PreparedNode* node) {
    const std::size_t bytes = node != nullptr ? node->state_bytes() : 0;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::size_t bytes = 0;
  for (const auto& node : prepared) bytes += padded(node.get());
  if (bytes == 0) return {};
  DeviceMemory& memory = dispatch->memory();
  auto buffer = DeviceBuffer::Create(memory, bytes);
  if (!buffer) return buffer.status();
  state = *std::move(buffer);
  const std::vector<std::byte> zeros(bytes);
  CULET_RETURN_IF_ERROR(memory.Upload(state.get(), zeros.data(), bytes, nullptr));
  CULET_RETURN_IF_ERROR(memory.Synchronize(nullptr));  // launches may be on any stream
  DevicePtr at = state.get();
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const std::size_t own = padded(prepared[i].get());
    if (own > 0) launches[i].state = at;
    at += own;
  }
  return {};
}

std::string GraphExecutor::Impl::KernelOf(std::size_t step) const {
  if (prepared[step] != nullptr) return prepared[step]->kernel();
  const GraphStep& made = schedule->steps()[step];
  return made.fusion != nullptr ? made.fusion->name : ToString(graph.node(made.id).op);
}

std::string GraphExecutor::Impl::RangeName(std::size_t step) const {
  return graph.node(schedule->steps()[step].id).name + " " + KernelOf(step);
}

template <class Call>
Status GraphExecutor::Impl::LaunchFirst(std::size_t count, const char* who, const Call& call,
                                        cudaStream_t stream) {
  for (std::size_t i = 0; i < count; ++i) {
    NodeLaunch& launch = launches[i];
    launch.stream = stream;
    const TraceRange range([&] { return RangeName(i); });
    const Status status = CaughtAs(who, [&] { return call(*dispatch, launch); });
    if (!status.ok()) return WithStep(graph, schedule->steps()[i], status);
  }
  return {};
}

Status GraphExecutor::Impl::LaunchEach(cudaStream_t stream, const NodeGate& gate) {
  const auto call = [&](KernelDispatch& to, const NodeLaunch& launch) -> Status {
    if (gate) CULET_RETURN_IF_ERROR(CaughtAs("the gate", gate));
    return to.launch(launch);
  };
  return LaunchFirst(launches.size(), "the dispatch", call, stream);
}

// Tried once: the reasons for a failure do not change between launches.
void GraphExecutor::Impl::Record() {
  tried = true;
  auto made = CaughtAs("record", [&] {
    return dispatch->record([&](cudaStream_t stream) { return LaunchEach(stream, nullptr); });
  });
  if (!made) {
    why_not_recorded = made.status().ToString();
  } else if (*made == nullptr) {
    why_not_recorded = "the dispatch made no recording";
  } else {
    recorded = *std::move(made);
    why_not_recorded.clear();
  }
}

GraphExecutor::GraphExecutor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GraphExecutor::~GraphExecutor() = default;
GraphExecutor::GraphExecutor(GraphExecutor&&) noexcept = default;
GraphExecutor& GraphExecutor::operator=(GraphExecutor&&) noexcept = default;

Result<GraphExecutor> GraphExecutor::Create(ComputeGraph graph, KernelDispatch& dispatch,
                                            const NodeGate& gate, const FusionChoice& fusions) {
  auto impl = std::make_unique<Impl>();
  impl->graph = std::move(graph);
  impl->dispatch = &dispatch;
  const Status own = impl->Complete(gate, fusions);
  CULET_RETURN_IF_ERROR(
      CaughtAs("agree", [&] { return dispatch.agree(own, ExchangePlanOf(impl->graph)); }));
  return GraphExecutor(std::move(impl));
}

// Not the first launch: a graph that runs once is not worth recording, and kernels are loaded by
// the second.
Status GraphExecutor::Launch(cudaStream_t stream, const NodeGate& gate) {
  Impl& impl = *impl_;
  if (impl.may_record && impl.launched && impl.dispatch->records(stream)) {
    if (!impl.tried) impl.Record();
    if (impl.recorded != nullptr) {
      if (gate) CULET_RETURN_IF_ERROR(CaughtAs("the gate", gate));
      const TraceRange range(
          [&] { return fmt::format("replay of {} launches", impl.launches.size()); });
      return CaughtAs("a replay", [&] { return impl.recorded->Replay(stream); });
    }
  }
  CULET_RETURN_IF_ERROR(impl.LaunchEach(stream, gate));
  impl.launched = true;
  return {};
}

Status GraphExecutor::Launch(const NodeHook& hook, cudaStream_t stream) {
  return impl_->LaunchFirst(impl_->launches.size(), "the hook", hook, stream);
}

Result<std::unique_ptr<RecordedLaunches>> GraphExecutor::RecordFirst(int count, int times) const {
  Impl& impl = *impl_;
  if (count < 1 || count > static_cast<int>(impl.launches.size()) || times < 1) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("launches is {} and times {}; the graph has {} launches, and both are "
                    "1 at least",
                    count, times, impl.launches.size()));
  }
  return CaughtAs("record", [&] {
    // By value: a dispatch may keep the function and replay by calling it.
    return impl.dispatch->record([&impl, count, times](cudaStream_t stream) -> Status {
      const auto call = [](KernelDispatch& to, const NodeLaunch& launch) {
        return to.launch(launch);
      };
      for (int i = 0; i < times; ++i) {
        CULET_RETURN_IF_ERROR(
            impl.LaunchFirst(static_cast<std::size_t>(count), "the dispatch", call, stream));
      }
      return {};
    });
  });
}

std::vector<int> GraphExecutor::launched() const {
  std::vector<int> nodes;
  for (const NodeLaunch& launch : impl_->launches) nodes.push_back(launch.id);
  return nodes;
}

KernelDispatch& GraphExecutor::dispatch() const noexcept { return *impl_->dispatch; }

void GraphExecutor::SetRecording(bool on) noexcept { impl_->may_record = on; }
bool GraphExecutor::replays() const noexcept {
  return impl_->may_record && impl_->recorded != nullptr;
}
const std::string& GraphExecutor::why_not_recorded() const noexcept {
  static const std::string off = "recording is switched off";
  return impl_->may_record ? impl_->why_not_recorded : off;
}

DevicePtr GraphExecutor::address(int id) const noexcept {
  return impl_->addresses[static_cast<std::size_t>(id)];
}
const ComputeGraph& GraphExecutor::graph() const noexcept { return impl_->graph; }
const MemoryPlan& GraphExecutor::plan() const noexcept { return impl_->plan; }
int GraphExecutor::n_launches() const noexcept { return impl_->n_launches; }
std::size_t GraphExecutor::workspace_bytes() const noexcept { return impl_->workspace.bytes(); }

const std::vector<Fusion>& GraphExecutor::fusions() const noexcept { return impl_->fusions; }

const Fusion* GraphExecutor::fusion_of(int id) const noexcept {
  return impl_->schedule->FusionOf(id);
}

NodeCost GraphExecutor::cost_of(int id) const noexcept {
  const int step = impl_->step_of[static_cast<std::size_t>(id)];
  if (step < 0) return {};
  return CostOf(impl_->graph, impl_->schedule->steps()[static_cast<std::size_t>(step)]);
}

std::string GraphExecutor::kernel_of(int id) const {
  const int step = impl_->step_of[static_cast<std::size_t>(id)];
  if (step < 0) return ToString(impl_->graph.node(id).op);
  return impl_->KernelOf(static_cast<std::size_t>(step));
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
    const Fusion* fusion = executor->fusion_of(id);
    if (fusion != nullptr && fusion->nodes.back() != id) continue;
    const NodeCost cost = executor->cost_of(id);
    result.cost.bytes += cost.bytes;
    result.cost.operations += cost.operations;
  }
  return result;
}

}  // namespace culet
