#include "graph/cuda/attention.h"

#include <algorithm>
#include <string>

#include "cuda/error.h"

namespace culet::cuda_ops {
namespace {

// Inputs of an Attention node.
constexpr std::size_t kStarts = 3, kPositions = 4, kLengths = 5, kTable = 6, kScales = 7;

// Keys that a row can see: those of its block table, or of its batch.
std::int64_t MostKeys(const ComputeGraph& graph, const TensorNode& node) noexcept {
  if (node.inputs.size() <= kTable) return node.shape.rows;
  const std::int64_t keys =
      graph.node(node.inputs[kTable]).shape.cols * node.params.attention.block_size;
  std::int64_t most = keys;
  for (const int limit : {node.params.attention.window, node.params.attention.chunk}) {
    if (limit > 0) most = std::min<std::int64_t>(most, limit);
  }
  return most;
}

// The leaf of which a value is the changed memory.
int LeafOf(const ComputeGraph& graph, int id) {
  const TensorNode& node = graph.node(id);
  return node.op == TensorOp::kKvWrite ? LeafOf(graph, node.inputs[0]) : id;
}

// Whether two leaves share memory.
bool Overlap(const TensorNode& a, const TensorNode& b) {
  const auto end = [](const TensorNode& leaf) {
    return leaf.data_ptr + static_cast<DevicePtr>(BytesOf(leaf));
  };
  return a.data_ptr < end(b) && b.data_ptr < end(a);
}

}  // namespace

AttentionShape ShapeOfAttention(const ComputeGraph& graph, const TensorNode& node) {
  AttentionShape shape;
  shape.params = node.params.attention;
  shape.kv_type = graph.node(node.inputs[1]).type;
  shape.rows = node.shape.rows;
  if (node.inputs.size() > kStarts) {
    shape.sequences = graph.node(node.inputs[kStarts]).shape.rows - 1;
  }
  shape.most_keys = MostKeys(graph, node);
  const TensorNode& q = graph.node(node.inputs[0]);
  const RopeParams& rope = q.params.rope;
  const bool by_halves = q.op != TensorOp::kRope ||
                         (rope.layout == RopeLayout::kNeox && rope.dims == shape.params.head_dim);
  shape.near = by_halves && q.type == DataType::kBfloat16 && node.type == DataType::kBfloat16;
  return shape;
}

bool MayReadEarly(const ComputeGraph& graph, const TensorNode& node) {
  if (!node.params.attention.single_rows || node.inputs.size() <= kTable) return false;
  // The graph's first kernel must not begin early. Product kernels would; an embedding does not.
  const auto is_launched = [](const TensorNode& other) { return other.op != TensorOp::kNone; };
  const auto first = std::ranges::find_if(graph.nodes(), is_launched);
  if (first == graph.nodes().end() || first->op != TensorOp::kEmbedding) return false;
  for (const std::size_t input : {kStarts, kPositions, kLengths, kTable}) {
    if (graph.node(node.inputs[input]).op != TensorOp::kNone) return false;
  }
  for (std::size_t input = kScales; input < node.inputs.size(); ++input) {
    if (graph.node(node.inputs[input]).op != TensorOp::kNone) return false;
  }
  const TensorNode* const caches[2] = {&graph.node(LeafOf(graph, node.inputs[1])),
                                       &graph.node(LeafOf(graph, node.inputs[2]))};
  for (const TensorNode* const cache : caches) {
    if (cache->op != TensorOp::kNone) return false;  // a value of the launch's own
  }
  // Each cache is written by at most one node, the layer's own, and nothing else here is written
  // earlier.
  int writes[2] = {};
  for (const TensorNode& other : graph.nodes()) {
    if (&other == &node) break;
    if (other.op == TensorOp::kAdvance) return false;
    if (other.op != TensorOp::kKvWrite) continue;
    const TensorNode& written = graph.node(LeafOf(graph, other.inputs[0]));
    for (int i = 0; i < 2; ++i) writes[i] += Overlap(written, *caches[i]);
  }
  return writes[0] <= 1 && writes[1] <= 1;
}

AttentionArgs ArgsOfAttention(const NodeLaunch& launch, const TensorNode& node) {
  const ComputeGraph& graph = *launch.graph;
  const auto input = [&](std::size_t i) {
    return launch.fusion == nullptr ? launch.inputs[i] : launch.value(node.inputs[i]);
  };
  const auto indices = [&](std::size_t i) { return FromDevicePtr<const std::int32_t>(input(i)); };
  const auto node_of = [&](std::size_t i) -> const TensorNode& {
    return graph.node(node.inputs[i]);
  };
  AttentionArgs args;
  args.params = node.params.attention;
  args.q = FromDevicePtr<const void>(input(0));
  args.k = FromDevicePtr<const void>(input(1));
  args.v = FromDevicePtr<const void>(input(2));
  args.out = FromDevicePtr<void>(launch.output);
  args.q_type = node_of(0).type;
  args.kv_type = node_of(1).type;
  args.out_type = node.type;
  if (node.params.sinks.present()) {
    args.sinks = FromDevicePtr<const void>(node.params.sinks.data_ptr);
    args.sinks_type = node.params.sinks.type;
  }
  args.rows = node.shape.rows;
  args.key_rows = node_of(1).shape.rows;
  if (node.inputs.size() > kStarts) {
    args.starts = indices(kStarts);
    args.sequences = node_of(kStarts).shape.rows - 1;
  }
  if (node.inputs.size() > kTable) {
    args.positions = indices(kPositions);
    args.lengths = indices(kLengths);
    args.table = indices(kTable);
    args.table_cols = node_of(kTable).shape.cols;
  }
  if (node.inputs.size() > kScales) {
    args.k_scales = FromDevicePtr<const float>(input(kScales));
    args.v_scales = FromDevicePtr<const float>(input(kScales + 1));
  }
  return args;
}

std::string NameOfSplits(const AttentionSplits& how) {
  return how.most == 1 ? std::string() : "/s" + std::to_string(how.most);
}

std::string NameOfLatent(const AttentionPlan& plan) {
  if (!plan.tensor_cores) return "cuda/latent_attention" + NameOfSplits(plan.lanes);
  const std::string kernel = plan.wgmma ? "wgmma" : "mma";
  return "cuda/latent_attention/" + kernel + NameOfSplits(plan.tiles);
}

std::string NameOfDecode(const AttentionPlan& plan) {
  return (plan.near_warps > 0 ? "near" : "decode") + NameOfSplits(plan.decode);
}

}  // namespace culet::cuda_ops
