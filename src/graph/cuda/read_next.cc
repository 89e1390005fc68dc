#include "graph/cuda/read_next.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "graph/joined_weight.h"

namespace culet::cuda_ops {

ReadNext NextWeights(const ComputeGraph& graph, int id) {
  constexpr std::int64_t kPiece = 16;
  if (graph.node(id).shape.rows > kMostRowsToBring) return {};
  std::vector<const Weight*> weights;
  for (const TensorNode& node : graph.nodes()) {
    if (node.op == TensorOp::kMulMat && node.inputs[0] == id)
      weights.push_back(&node.params.weight);
  }
  if (weights.empty()) return {};
  const Weight joined = JoinedWeight(weights);
  const Weight& weight = joined.present() ? joined : *weights.front();
  const auto skipped =
      static_cast<std::int64_t>((0 - weight.data_ptr) % static_cast<DevicePtr>(kPiece));
  const std::int64_t bytes =
      weight.rows * weight.cols * static_cast<std::int64_t>(SizeOf(weight.type)) - skipped;
  if (bytes < kPiece) return {};
  return {FromDevicePtr<const void>(weight.data_ptr + static_cast<DevicePtr>(skipped)),
          std::min(bytes, kMostBytesToBring) / kPiece * kPiece};
}

}  // namespace culet::cuda_ops
