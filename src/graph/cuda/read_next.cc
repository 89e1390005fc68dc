#include "graph/cuda/read_next.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "graph/joined_weight.h"

namespace culet::cuda_ops {

ReadNext NextWeights(const ComputeGraph& graph, int id) {
  constexpr DevicePtr kPiece = 16;
  const auto& nodes = graph.nodes();
  const auto product =
      std::find_if(nodes.begin() + id + 1, nodes.end(),
                   [](const TensorNode& node) { return node.op == TensorOp::kMulMat; });
  if (product == nodes.end() || product->shape.rows > kMostRowsToBring) return {};
  std::vector<const Weight*> weights;
  for (auto other = product; other != nodes.end(); ++other) {
    if (other->op == TensorOp::kMulMat && other->inputs == product->inputs)
      weights.push_back(&other->params.weight);
  }
  const Weight joined = JoinedWeight(weights);
  const Weight& weight = joined.present() ? joined : *weights.front();
  const auto size = weight.rows * weight.cols * static_cast<std::int64_t>(SizeOf(weight.type));
  const DevicePtr begin = (weight.data_ptr + kPiece - 1) / kPiece * kPiece;
  const auto bytes = size - static_cast<std::int64_t>(begin - weight.data_ptr);
  if (bytes < static_cast<std::int64_t>(kPiece)) return {};
  return {FromDevicePtr<const void>(begin), std::min(bytes, kMostBytesToBring) /
                                                static_cast<std::int64_t>(kPiece) *
                                                static_cast<std::int64_t>(kPiece)};
}

}  // namespace culet::cuda_ops
