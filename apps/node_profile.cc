#include "node_profile.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "culet/kernel_dispatch.h"

namespace culet::cli {
namespace {

NodeTime NodeOf(const GraphExecutor& executor, int id, double time_us, bool among) {
  const TensorNode& node = executor.graph().node(id);
  const Fusion* fusion = executor.fusion_of(id);
  return {id,
          node.name,
          fusion != nullptr ? fusion->name : ToString(node.op),
          executor.kernel_of(id),
          executor.cost_of(id),
          time_us,
          among};
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

NodeHook NodeProfile::Hook() {
  return [this](KernelDispatch& dispatch, const NodeLaunch& launch) -> Status {
    const auto start = std::chrono::steady_clock::now();
    CULET_RETURN_IF_ERROR(dispatch.launch(launch));
    CULET_RETURN_IF_ERROR(dispatch.memory().Synchronize(launch.stream));
    samples_us_[launch.id].push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
    return {};
  };
}

std::vector<NodeTime> NodeProfile::Nodes(const GraphExecutor& executor) const {
  std::vector<NodeTime> nodes;
  for (const auto& [id, samples] : samples_us_) {
    nodes.push_back(NodeOf(executor, id, Median(samples), false));
  }
  return nodes;
}

namespace {

// Of one of the `times` that it holds.
Result<double> ReplayUs(RecordedLaunches& recorded, int times, int wanted, DeviceMemory& memory,
                        cudaStream_t stream) {
  constexpr int kLongSamples = 3;
  constexpr double kLongUs = 10'000;
  std::vector<double> samples;
  for (int i = 0; i <= wanted; ++i) {
    if (i > kLongSamples && samples[0] * times > kLongUs) break;
    CULET_RETURN_IF_ERROR(memory.Synchronize(stream));
    const auto start = std::chrono::steady_clock::now();
    CULET_RETURN_IF_ERROR(recorded.Replay(stream));
    CULET_RETURN_IF_ERROR(memory.Synchronize(stream));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (i > 0) samples.push_back(took.count() / times);  // the first finds caches empty
  }
  return Median(std::move(samples));
}

}  // namespace

Result<std::vector<NodeTime>> TimeRecorded(const GraphExecutor& executor, cudaStream_t stream,
                                           int samples) {
  // Beginning and ending a replay takes host and device some 10 us, plus or minus one, so launches
  // of several steps are replayed together.
  constexpr double kReplayUs = 8000;
  constexpr int kMostTimes = 32;
  DeviceMemory& memory = executor.dispatch().memory();
  const std::vector<int> nodes = executor.launched();
  const auto replay_us = [&](int launches, int times) -> Result<double> {
    auto recorded = executor.RecordFirst(launches, times);
    if (!recorded.ok()) return recorded.status();
    return ReplayUs(**recorded, times, samples, memory, stream);
  };
  const auto whole_us = replay_us(static_cast<int>(nodes.size()), 1);
  if (!whole_us.ok()) return whole_us.status();
  const int times = std::clamp(static_cast<int>(kReplayUs / *whole_us), 1, kMostTimes);
  std::vector<NodeTime> timed;
  double before_us = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto us = replay_us(static_cast<int>(i) + 1, times);
    if (!us.ok()) return us.status();
    timed.push_back(NodeOf(executor, nodes[i], std::max(0.0, *us - before_us), true));
    before_us = std::max(before_us, *us);
  }
  return timed;
}

Result<std::vector<NodeTime>> TimeLastStep(const culet::Session& session, int samples) {
  const GraphExecutor& executor = *session.last_executor();
  const cudaStream_t stream = session.options().stream;
  std::vector<NodeTime> none;
  if (!session.options().record || !executor.dispatch().records(stream)) return none;
  auto timed = TimeRecorded(executor, stream, samples);
  if (timed.status().code() == StatusCode::kUnsupported) return none;
  return timed;
}

double RooflineUs(const NodeCost& cost, const HardwareRates& rates) {
  return std::max(cost.bytes / rates.read_gbps, cost.operations / rates.gflops) * 1e-3;
}

void PrintNodes(const std::string& title, const std::vector<NodeTime>& nodes,
                const HardwareRates& rates) {
  using Align = Table::Align;
  constexpr double kPercent = 100;
  Table table({{"node", Align::kRight},
               {"name"},
               {"operation"},
               {"kernel"},
               {"time", Align::kRight},
               {"bytes", Align::kRight},
               {"of roofline", Align::kRight},
               {"beyond it", Align::kRight}});
  double time_us = 0, bytes = 0, roofline_us = 0;
  const auto beyond = [](double us, double limit_us) {
    return ShownTime(std::max(0.0, us - limit_us));
  };
  for (const NodeTime& node : nodes) {
    const double limit_us = RooflineUs(node.cost, rates);
    table.Add({std::to_string(node.id), node.name, node.op, node.kernel, ShownTime(node.time_us),
               ShownBytes(node.cost.bytes),
               node.time_us > 0 ? fmt::format("{:.1f} %", kPercent * limit_us / node.time_us) : "-",
               beyond(node.time_us, limit_us)});
    time_us += node.time_us;
    bytes += node.cost.bytes;
    roofline_us += limit_us;
  }
  table.Add({"", "all", "", "", ShownTime(time_us), ShownBytes(bytes),
             fmt::format("{:.1f} %", kPercent * roofline_us / time_us),
             beyond(time_us, roofline_us)});
  Print("\n{}\n{}", title, table.ToString());
}

Json ToJson(const std::vector<NodeTime>& nodes, const HardwareRates& rates) {
  Json list = Json::array();
  for (const NodeTime& node : nodes) {
    list.push_back({{"node", node.id},
                    {"name", node.name},
                    {"op", node.op},
                    {"kernel", node.kernel},
                    {"time_us", Number(node.time_us)},
                    {"bytes", Number(node.cost.bytes)},
                    {"operations", Number(node.cost.operations)},
                    {"among_others", node.among},
                    {"roofline_us", Number(RooflineUs(node.cost, rates))},
                    {"roofline_share", Number(RooflineUs(node.cost, rates) / node.time_us)}});
  }
  return list;
}

}  // namespace culet::cli
