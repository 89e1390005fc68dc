// Which fusions of a graph are used, and why one is not.
#include "culet/fusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "culet/graph.h"
#include "graph/liveness.h"
#include "graph/schedule.h"

namespace culet {
namespace {

std::string NameOf(const ComputeGraph& graph, int id) {
  if (id < 0 || id >= graph.size()) return fmt::format("no node {}", id);
  const std::string& name = graph.node(id).name;
  return name.empty() ? fmt::format("node {}", id) : name;
}

bool Has(const Fusion& fusion, int id) {
  return std::ranges::find(fusion.nodes, id) != fusion.nodes.end();
}

// A second value comes from the node of the first.
bool Makes(const ComputeGraph& graph, const Fusion& fusion, int id) {
  return Has(fusion, IsSecond(graph.node(id).op) ? id - 1 : id);
}

Status Impossible(const ComputeGraph& graph, const Fusion& fusion, const std::string& reason) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{}: {}", DescribeFusion(graph, fusion), reason));
}

// A reason against one of `in_place`; null when there is none.
const char* WhyNotInPlace(const ComputeGraph& graph, const Fusion& fusion) {
  for (const Fusion::InPlace& pair : fusion.in_place) {
    const bool exists = pair.value >= 0 && pair.value < graph.size();
    if (!exists || !Makes(graph, fusion, pair.value))
      return "in_place names a value that no node of it makes";
    const bool read = std::ranges::any_of(fusion.nodes, [&](int id) {
      const std::vector<int>& inputs = graph.node(id).inputs;
      return std::ranges::find(inputs, pair.input) != inputs.end();
    });
    if (!read || Makes(graph, fusion, pair.input)) {
      return "in_place names an input that it does not read from outside";
    }
  }
  return nullptr;
}

// Whether a fusion, which runs later than its first nodes would, still finds its inputs unchanged.
bool NothingOverwritten(const ComputeGraph& graph, const std::vector<Fusion>& fusions) {
  const Schedule schedule(graph, fusions);
  const Liveness liveness(graph, schedule);
  for (int id = 0; id < graph.size(); ++id) {
    if (!liveness.OverwriteBy(id).empty()) return false;
  }
  return true;
}

}  // namespace

Feasibility CanFuse(const ComputeGraph& graph, const Fusion& fusion) {
  if (fusion.nodes.size() < 2) return Feasibility::Refuse("it has fewer than two nodes");
  int before = -1;
  for (const int id : fusion.nodes) {
    if (id <= before) return Feasibility::Refuse("its nodes do not ascend");
    if (id >= graph.size()) return Feasibility::Refuse("it names a node that does not exist");
    if (graph.node(id).op == TensorOp::kNone) return Feasibility::Refuse("it has a leaf");
    if (IsSecond(graph.node(id).op)) {
      return Feasibility::Refuse("it names a second value, which comes with the one before it");
    }
    before = id;
  }
  for (int id = fusion.nodes.front() + 1; id < fusion.nodes.back(); ++id) {
    if (Makes(graph, fusion, id)) continue;
    for (const int input : graph.node(id).inputs) {
      if (Makes(graph, fusion, input)) {
        return Feasibility::Refuse("another node reads its values before its last node has run");
      }
    }
  }
  const char* reason = WhyNotInPlace(graph, fusion);
  return reason == nullptr ? Feasibility::Ok() : Feasibility::Refuse(reason);
}

Result<std::vector<Fusion>> ChooseFusions(const ComputeGraph& graph, std::vector<Fusion> offered,
                                          const FusionChoice& choice) {
  std::vector<Fusion> chosen;
  if (choice.none) return chosen;
  std::vector<bool> taken(static_cast<std::size_t>(graph.size()));
  for (Fusion& fusion : offered) {
    if (std::ranges::find(choice.off, fusion.name) != choice.off.end()) continue;
    if (const Feasibility ok = CanFuse(graph, fusion); !ok.ok()) {
      return Impossible(graph, fusion, ok.reason());
    }
    const auto is_taken = [&](int id) { return taken[static_cast<std::size_t>(id)]; };
    if (std::ranges::any_of(fusion.nodes, is_taken)) continue;
    for (const int id : fusion.nodes) taken[static_cast<std::size_t>(id)] = true;
    chosen.push_back(std::move(fusion));
  }
  if (NothingOverwritten(graph, chosen)) return chosen;
  std::vector<Fusion> possible;
  for (Fusion& fusion : chosen) {
    possible.push_back(std::move(fusion));
    if (!NothingOverwritten(graph, possible)) possible.pop_back();
  }
  return possible;
}

std::string DescribeFusion(const ComputeGraph& graph, const Fusion& fusion) {
  std::string text = fmt::format("fusion {} of ", fusion.name);
  for (std::size_t i = 0; i < fusion.nodes.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", NameOf(graph, fusion.nodes[i]));
  }
  return text;
}

}  // namespace culet
