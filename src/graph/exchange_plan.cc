#include "graph/exchange_plan.h"

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace culet {
namespace {

// FNV-1a.
void Mix(std::uint64_t& hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
}

}  // namespace

std::string ExchangePlanOf(const ComputeGraph& graph) {
  std::string plan;
  std::uint64_t hash = 14695981039346656037u;
  for (const TensorNode& node : graph.nodes()) {
    Mix(hash, fmt::format("{} {} {} {};", node.name, ToString(node.op), ToString(node.type),
                          node.shape.rows));
    if (node.op != TensorOp::kAllReduce && node.op != TensorOp::kAllGather &&
        node.op != TensorOp::kAllArgMax) {
      continue;
    }
    plan += fmt::format("{} [{}, {}] {:016x}\n", node.name, node.shape.rows, node.shape.cols, hash);
  }
  return plan;
}

}  // namespace culet
