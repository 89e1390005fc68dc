#include "model/nan_search.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "base/float_types.h"
#include "culet/kernel_dispatch.h"

namespace culet {
namespace {

// Unwritten rows of caches and of other ranks' experts may hold anything, and indices are no
// floating-point numbers.
bool HasNumbers(const ComputeGraph& graph, const TensorNode& node) {
  if (node.op == TensorOp::kKvWrite || node.type == DataType::kInt32) return false;
  const auto is_part = [](const TensorNode& of) {
    return of.op == TensorOp::kExpertMulMat && of.params.parts.present();
  };
  if (is_part(node)) return false;
  // What lies between such products.
  for (const TensorNode* from = &node; !from->inputs.empty() && from->op != TensorOp::kCombine;) {
    from = &graph.node(from->inputs[0]);
    if (is_part(*from)) return false;
  }
  return true;
}

}  // namespace

Status NaNFrom(GraphExecutor& executor, const std::string& consequence, cudaStream_t stream) {
  std::vector<std::byte> value;
  const NodeHook look = [&](KernelDispatch& dispatch, const NodeLaunch& launch) -> Status {
    CULET_RETURN_IF_ERROR(dispatch.launch(launch));
    for (std::size_t at = 0; at < launch.outputs.size(); ++at) {
      const TensorNode& node = launch.graph->node(launch.output_ids[at]);
      if (!HasNumbers(*launch.graph, node)) continue;
      value.resize(static_cast<std::size_t>(BytesOf(node)));
      CULET_RETURN_IF_ERROR(
          dispatch.memory().Download(value.data(), launch.outputs[at], value.size(), stream));
      const std::int64_t count = node.shape.rows * node.shape.cols;
      for (std::int64_t i = 0; i < count; ++i) {
        if (!std::isnan(LoadAsDouble(value.data(), node.type, i))) continue;
        return Status(
            StatusCode::kDataLoss,
            fmt::format("the first value with a NaN, in row {}, column {}{}, so that {}; its "
                        "weights hold one, or its arithmetic overflows",
                        i / node.shape.cols, i % node.shape.cols,
                        launch.fusion != nullptr
                            ? " of " + DescribeNode(*launch.graph, launch.output_ids[at])
                            : "",
                        consequence));
      }
    }
    return {};
  };
  CULET_RETURN_IF_ERROR(executor.Launch(look, stream));
  return Status(StatusCode::kInternal,
                fmt::format("{}, and the same step had no NaN when it ran again", consequence));
}

}  // namespace culet
