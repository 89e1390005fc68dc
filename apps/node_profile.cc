#include "node_profile.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "culet/kernel_dispatch.h"

namespace culet::cli {
namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

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
    const TensorNode& node = executor.graph().node(id);
    const Fusion* fusion = executor.fusion_of(id);
    nodes.push_back({id, node.name, fusion != nullptr ? fusion->name : ToString(node.op),
                     executor.kernel_of(id), executor.cost_of(id), Median(samples)});
  }
  return nodes;
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
               {"of roofline", Align::kRight}});
  double time_us = 0, bytes = 0, roofline_us = 0;
  for (const NodeTime& node : nodes) {
    const double limit_us = RooflineUs(node.cost, rates);
    table.Add({std::to_string(node.id), node.name, node.op, node.kernel, ShownTime(node.time_us),
               ShownBytes(node.cost.bytes),
               fmt::format("{:.1f} %", kPercent * limit_us / node.time_us)});
    time_us += node.time_us;
    bytes += node.cost.bytes;
    roofline_us += limit_us;
  }
  table.Add({"", "all", "", "", ShownTime(time_us), ShownBytes(bytes),
             fmt::format("{:.1f} %", kPercent * roofline_us / time_us)});
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
                    {"roofline_share", Number(RooflineUs(node.cost, rates) / node.time_us)}});
  }
  return list;
}

}  // namespace culet::cli
