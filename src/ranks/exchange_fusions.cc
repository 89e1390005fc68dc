#include "ranks/exchange_fusions.h"

#include <algorithm>
#include <array>
#include <utility>

#include "graph/fusion_search.h"

namespace culet {
namespace {

constexpr const char* kNorm = "all_reduce_rms_norm";
constexpr const char* kAddNorm = "all_reduce_add_rms_norm";
constexpr const char* kNormQuantize = "all_reduce_rms_norm_quantize";
constexpr const char* kAddNormQuantize = "all_reduce_add_rms_norm_quantize";
constexpr std::array kNames = {kAddNormQuantize, kAddNorm, kNormQuantize, kNorm};

class Search {
 public:
  Search(const ComputeGraph& graph, const RankExchange& exchange)
      : graph_(graph), readers_(graph), exchange_(exchange) {}

  std::vector<Fusion> Run() {
    for (int id = 0; id < graph_.size(); ++id) {
      if (graph_.node(id).op == TensorOp::kRmsNorm) FindNorm(id);
    }
    std::erase_if(found_, [&](const Fusion& fusion) { return !CanFuse(graph_, fusion).ok(); });
    std::ranges::stable_sort(found_, std::ranges::greater(),
                             [](const Fusion& fusion) { return fusion.nodes.size(); });
    return std::move(found_);
  }

 private:
  bool IsWide(int id) const {
    const TensorNode& node = graph_.node(id);
    return node.type == DataType::kFloat32 && node.data_ptr % 16 == 0;
  }

  bool IsSum(int id) const {
    return graph_.node(id).op == TensorOp::kAllReduce && IsWide(id) &&
           IsWide(graph_.node(id).inputs[0]);
  }

  // The quantize of the norm's groups of 128, or -1.
  int CodesOf(int norm) const {
    constexpr int kGroup = 128;
    for (const int id : readers_.of(norm)) {
      const TensorNode& node = graph_.node(id);
      if (node.op == TensorOp::kQuantize && node.params.quant_a.type == QuantType::kK &&
          node.params.quant_a.group_size == kGroup && node.data_ptr % 16 == 0) {
        return id;
      }
    }
    return -1;
  }

  void FindNorm(int id) {
    const TensorNode& norm = graph_.node(id);
    const Weight& gamma = norm.params.gamma;
    const bool value = norm.type == DataType::kFloat32 || norm.type == DataType::kBfloat16;
    const bool stored = gamma.type == DataType::kFloat32 || gamma.type == DataType::kBfloat16 ||
                        gamma.type == DataType::kFloat16;
    if (gamma.cols != norm.shape.cols || gamma.data_ptr % 16 != 0 || norm.data_ptr % 16 != 0 ||
        !value || !stored || !exchange_.TakesNorm(norm.shape.rows, norm.shape.cols)) {
      return;
    }
    const int x = norm.inputs[0];
    if (IsSum(x)) {
      Offer(kNorm, kNormQuantize, {x, id}, {{x, graph_.node(x).inputs[0]}});
      return;
    }
    if (graph_.node(x).op != TensorOp::kAdd || !IsWide(x)) return;
    const std::vector<int>& in = graph_.node(x).inputs;
    for (const int sum : in) {
      const int other = sum == in[0] ? in[1] : in[0];
      if (sum == other || !IsSum(sum) || !readers_.IsOne(sum) || !IsWide(other)) continue;
      Offer(kAddNorm, kAddNormQuantize, {sum, x, id},
            {{x, other}, {x, graph_.node(sum).inputs[0]}});
      return;
    }
  }

  // The nodes, ascending but for the norm's codes.
  void Offer(const char* name, const char* with_codes, std::vector<int> nodes,
             std::vector<Fusion::InPlace> in_place) {
    if (const int codes = CodesOf(nodes.back()); codes >= 0) {
      std::vector<int> all = nodes;
      all.push_back(codes);
      found_.push_back({with_codes, std::move(all), in_place});
    }
    found_.push_back({name, std::move(nodes), std::move(in_place)});
  }

  const ComputeGraph& graph_;
  const Readers readers_;
  const RankExchange& exchange_;
  std::vector<Fusion> found_;
};

}  // namespace

std::vector<std::string> ExchangeFusionNames() { return {kNames.begin(), kNames.end()}; }

bool IsExchangeFusion(const Fusion& fusion) {
  return std::ranges::find(kNames, fusion.name) != kNames.end();
}

std::vector<Fusion> FindExchangeFusions(const ComputeGraph& graph, const RankExchange& exchange) {
  return Search(graph, exchange).Run();
}

SumAndNorm ArgsOfExchange(const NodeLaunch& launch) {
  const ComputeGraph& graph = *launch.graph;
  SumAndNorm args;
  int summed = -1;
  for (const int id : launch.fusion->nodes) {
    const TensorNode& node = graph.node(id);
    switch (node.op) {
      case TensorOp::kAllReduce:
        summed = id;
        args.x = launch.value(node.inputs[0]);
        args.sum = launch.value(id);
        break;
      case TensorOp::kAdd:
        args.residual = launch.value(node.inputs[node.inputs[0] == summed ? 1 : 0]);
        args.sum = launch.value(id);
        break;
      case TensorOp::kRmsNorm:
        args.gamma = &node.params.gamma;
        args.epsilon = node.params.scalar;
        args.out = launch.value(id);
        args.out_type = node.type;
        args.rows = node.shape.rows;
        args.width = node.shape.cols;
        break;
      default:  // the codes
        args.codes = launch.value(id);
        args.scales = launch.value(id + 1);
        break;
    }
  }
  return args;
}

}  // namespace culet
