#include "graph/cuda/router.h"

#include <algorithm>

#include "cuda/error.h"
#include "graph/cpu_product.h"
#include "graph/cuda/experts.h"
#include "graph/cuda/fused_norm.h"
#include "kernels/cuda_ops/router.h"

namespace culet::cuda_ops {
namespace {

class PreparedRouter final : public PreparedFusion {
 public:
  PreparedRouter(const ComputeGraph& graph, const Fusion& fusion) : norm_(graph, fusion) {
    route_ = FirstOf(graph, fusion, TensorOp::kRoute);
    product_ = graph.node(route_).inputs[0];
    const TensorNode& logits = graph.node(product_);
    const TensorNode& x = graph.node(logits.inputs[0]);
    const auto take = [&](const TensorNode& node) {
      const std::size_t at = bytes_;
      bytes_ += PaddedTo256(static_cast<std::size_t>(BytesOf(node)));
      return static_cast<DevicePtr>(at);
    };
    take(logits);
    shares_at_ = take(graph.node(route_));
    routes_at_ = take(graph.node(route_ + 1));
    if (norm_.present()) values_at_ = take(x);
    name_ = "cuda/" + fusion.name;
  }

  std::string kernel() const override { return name_; }
  std::size_t workspace_bytes() const override { return bytes_; }

  Status Launch(const NodeLaunch& launch, LaunchStream stream) const override {
    const ComputeGraph& graph = *launch.graph;
    const TensorNode& product = graph.node(product_);
    const int from = product.inputs[0];
    const TensorNode& x = graph.node(from);
    RouterArgs args;
    // What nobody else reads has no memory of its own.
    const auto place = [&](int id, DevicePtr at) {
      const DevicePtr own = launch.value(id);
      return own != 0 ? own : launch.workspace + at;
    };
    args.normalises = norm_.present();
    if (args.normalises) {
      args.norm = norm_.Args(launch);
      args.norm.out = FromDevicePtr<void>(place(from, values_at_));
    } else {
      args.x = FromDevicePtr<const void>(launch.value(from));
    }
    args.x_type = x.type;
    args.weight = FromDevicePtr<const void>(product.params.weight.data_ptr);
    args.bias = FromDevicePtr<const void>(product.params.bias.data_ptr);
    args.bias_type = product.params.bias.type;
    args.width = static_cast<int>(x.shape.cols);
    args.route =
        ArgsOfRoute(graph, route_, place(route_, shares_at_), place(route_ + 1, routes_at_));
    args.logits = FromDevicePtr<float>(launch.workspace);
    return CudaStatus(Router(args, stream), "launching " + name_);
  }

 private:
  std::string name_;
  NormOfFusion norm_;
  int route_ = -1, product_ = -1;
  std::size_t bytes_ = 0;  // of scratch memory, the logits first
  DevicePtr shares_at_ = 0, routes_at_ = 0, values_at_ = 0;
};

}  // namespace

bool TakesRouter(const ComputeGraph& graph, int route) {
  const TensorNode& node = graph.node(route);
  const TensorNode& logits = graph.node(node.inputs[0]);
  if (logits.op != TensorOp::kMulMat || logits.inputs.size() != 1 ||
      logits.type != DataType::kFloat32 || logits.params.quant_a.type != QuantType::kNone) {
    return false;
  }
  const TensorNode& x = graph.node(logits.inputs[0]);
  const Weight& weight = logits.params.weight;
  const Shape routes = node.shape;
  return weight.type == DataType::kBfloat16 && weight.data_ptr % 16 == 0 && x.data_ptr % 16 == 0 &&
         x.shape.cols % 8 == 0 && x.shape.cols <= static_cast<std::int64_t>(kMostRouterShared) &&
         (x.type == DataType::kFloat32 || x.type == DataType::kBfloat16) &&
         routes.rows <= kMostRouterRows && routes.rows * routes.cols <= kFewRoutes &&
         RouterShared(routes.rows, static_cast<int>(x.shape.cols),
                      static_cast<int>(logits.shape.cols), x.type) <= kMostRouterShared &&
         CanOverlap();
}

std::unique_ptr<PreparedFusion> MakePreparedRouter(const ComputeGraph& graph,
                                                   const Fusion& fusion) {
  return std::make_unique<PreparedRouter>(graph, fusion);
}

}  // namespace culet::cuda_ops
