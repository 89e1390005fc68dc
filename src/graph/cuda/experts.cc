#include "graph/cuda/experts.h"

#include <algorithm>
#include <vector>

#include "base/scales.h"
#include "cuda/error.h"
#include "graph/cuda/fused.h"
#include "graph/routes.h"

namespace culet::cuda_ops {
namespace {

constexpr int kWide = 8;  // elements of a vector

bool IsAligned(DevicePtr pointer) noexcept { return pointer % 16 == 0; }

bool IsValue(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kBfloat16;
}

Feasibility SupportsProduct(const ComputeGraph& graph, const TensorNode& node) {
  const Weight& first = node.params.experts->weights.front();
  const bool codes = IsCode(first.type);
  if (first.type != DataType::kFloat8_e4m3 && !codes) return Feasibility::Ok();
  if (first.order_ptr != 0) {
    return Feasibility::Refuse(
        "the CUDA dispatch takes experts whose columns are in the order of their inputs");
  }
  if (!codes && node.params.quant_a == QuantDesc{}) {
    return Feasibility::Refuse(
        "the CUDA dispatch takes experts of float8_e4m3 whose inputs are quantised");
  }
  const std::int64_t k = graph.node(node.inputs[0]).shape.cols;
  const auto fits = [&](std::int64_t group) { return group == k || group % kWide == 0; };
  if (fits(WeightGroupOf(first).cols) && (codes || fits(InputGroupOf(node.params.quant_a, k)))) {
    return Feasibility::Ok();
  }
  return Feasibility::Refuse(
      "the CUDA dispatch takes experts whose groups are rows or a multiple of 8 elements");
}

bool Makes(const NodeLaunch& launch, int id) {
  return launch.fusion == nullptr
             ? launch.id == id
             : std::ranges::find(launch.fusion->nodes, id) != launch.fusion->nodes.end();
}

// Whether a grouped kernel lies between the launch that made the Route with id `route` and this
// one. Such a kernel lets the next one begin only once all before it have ended; others do so
// before they wait.
bool RoutesAreDone(const NodeLaunch& launch, int route) {
  for (const NodeLaunch* at = launch.previous; at != nullptr && !Makes(*at, route);
       at = at->previous) {
    if (at->fusion == nullptr && at->node().op == TensorOp::kExpertMulMat) {
      return static_cast<const PreparedExperts*>(at->prepared)->is_grouped();
    }
    if (at->fusion != nullptr && at->fusion->name == kExpertsGateUp) return true;
  }
  return false;
}

// The Route of the routes at `routes`.
int RouteWithRoutes(const ComputeGraph& graph, int routes) { return graph.node(routes).inputs[0]; }

}  // namespace

Feasibility SupportsExperts(const ComputeGraph& graph, const TensorNode& node) {
  const DataType input = graph.node(node.inputs[0]).type;
  const bool codes = node.op == TensorOp::kExpertMulMat && input == DataType::kFloat8_e4m3;
  if ((!IsValue(input) && !codes) || !IsValue(node.type)) {
    return Feasibility::Refuse("the CUDA dispatch routes float32 and bfloat16 values");
  }
  if (node.op == TensorOp::kExpertMulMat) return SupportsProduct(graph, node);
  if (node.op == TensorOp::kRoute && node.params.routing.groups > kMostGroups) {
    return Feasibility::Refuse("the CUDA dispatch takes at most 32 groups of experts");
  }
  return Feasibility::Ok();
}

std::size_t RouteWorkspace(const TensorNode& node) noexcept {
  return static_cast<std::size_t>(node.shape.rows * node.shape.cols) * sizeof(std::int32_t);
}

RouteArgs ArgsOfRoute(const ComputeGraph& graph, int route, DevicePtr shares, DevicePtr routes) {
  const TensorNode& node = graph.node(route);
  const Shape logits = graph.node(node.inputs[0]).shape;
  const auto parts = PartsOfRoutes(FromDevicePtr<std::int32_t>(routes), logits.cols,
                                   node.shape.rows * node.shape.cols);
  RouteArgs args;
  args.bias = FromDevicePtr<const void>(node.params.bias.data_ptr);
  args.bias_type = node.params.bias.type;
  args.routing = node.params.routing;
  args.by_logits = args.bias == nullptr &&
                   (args.routing.groups == 1 || args.routing.group_score == GroupScore::kMaximum);
  args.shares = FromDevicePtr<float>(shares);
  args.starts = parts.starts;
  args.routes = parts.routes;
  args.places = parts.places;
  args.rows = logits.rows;
  args.experts = static_cast<int>(logits.cols);
  return args;
}

Status LaunchRoute(const NodeLaunch& launch, LaunchStream stream) {
  RouteArgs args =
      ArgsOfRoute(*launch.graph, launch.id, launch.output, launch.value(launch.id + 1));
  args.logits = FromDevicePtr<const void>(launch.input(0));
  args.type = launch.input_node(0).type;
  args.ids = FromDevicePtr<std::int32_t>(launch.workspace);
  return CudaStatus(Route(args, stream), "routing");
}

Status LaunchCombine(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode &node = launch.node(), &x = launch.input_node(0);
  const RoutedInputs in = RoutedInputsOf(launch);
  CombineArgs args;
  args.x = FromDevicePtr<const void>(launch.input(0));
  args.x_type = x.type;
  args.shares = in.shares;
  args.places = in.parts.places;
  if (node.params.parts.present()) {
    args.first = in.parts.starts + in.first;
    args.end = args.first + in.count;
  }
  args.out = FromDevicePtr<void>(launch.output);
  args.out_type = node.type;
  args.rows = node.shape.rows;
  args.active = x.shape.rows / node.shape.rows;
  args.cols = node.shape.cols;
  args.early = RoutesAreDone(launch, RouteWithRoutes(*launch.graph, node.inputs[1]));
  return CudaStatus(Combine(args, stream), "combining experts");
}

Result<std::unique_ptr<PreparedNode>> PreparedExperts::Create(Gemm& gemm, DeviceMemory& memory,
                                                              const CudaDispatchOptions& options,
                                                              const ComputeGraph& graph, int id) {
  const TensorNode& node = graph.node(id);
  const auto& [weights, biases] = *node.params.experts;
  const Weight& first = weights.front();
  auto made = std::make_unique<PreparedExperts>();
  auto grouped = GroupedExperts::Create(gemm, memory, options, graph, {.product = id});
  if (!grouped) return grouped.status();
  made->grouped_ = *std::move(grouped);
  ExpertProductArgs& args = made->args_;
  args.weight_type = first.type;
  args.x_type = graph.node(node.inputs[0]).type;
  args.out_type = node.type;
  args.rows = node.shape.rows;
  args.n = node.shape.cols;
  args.k = graph.node(node.inputs[0]).shape.cols;
  args.experts = static_cast<int>(weights.size());
  args.active = node.params.routing.active;
  args.wide = args.k % kWide == 0;
  if (!biases.empty()) args.bias_type = biases.front().type;
  if (IsCode(first.type)) {
    args.group_k = WeightGroupOf(first).cols;
    args.scales_type = first.scales_type;
    args.zeros_type = first.zeros_type;
  }
  if (first.type == DataType::kFloat8_e4m3) {
    const Shape group = WeightGroupOf(first);
    args.group_n = group.rows;
    args.group_k = group.cols;
    args.x_group = InputGroupOf(node.params.quant_a, args.k);
  }
  std::vector<ExpertWeight> pointers;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    pointers.push_back({FromDevicePtr<const void>(weights[e].data_ptr),
                        FromDevicePtr<const void>(weights[e].scales_ptr),
                        biases.empty() ? nullptr : FromDevicePtr<const void>(biases[e].data_ptr),
                        FromDevicePtr<const void>(weights[e].zeros_ptr)});
    args.wide &= IsAligned(weights[e].data_ptr);
  }
  const std::size_t bytes = pointers.size() * sizeof(ExpertWeight);
  auto buffer = DeviceBuffer::Create(memory, bytes);
  if (!buffer) return buffer.status();
  made->weights_ = *std::move(buffer);
  args.weights = FromDevicePtr<const ExpertWeight>(made->weights_.get());
  CULET_RETURN_IF_ERROR(memory.Upload(made->weights_.get(), pointers.data(), bytes, nullptr));
  CULET_RETURN_IF_ERROR(memory.Synchronize(nullptr));  // launches may be on any stream
  return std::unique_ptr<PreparedNode>(std::move(made));
}

Status PreparedExperts::Launch(const NodeLaunch& launch, LaunchStream stream) const {
  const TensorNode& node = launch.node();
  if (grouped_ != nullptr && GroupedExperts::TakesInput(launch.input(0))) {
    const auto at = static_cast<int>(RoutesInput(*launch.graph, node));
    const bool shares = node.inputs.size() > static_cast<std::size_t>(at) + 1;
    return grouped_->Launch(
        launch,
        {.x = launch.input(0),
         .x_scales = at > 1 ? launch.input(1) : 0,
         .routes = launch.input(at),
         .shares = shares ? launch.input(at + 1) : 0,
         .routes_done = RoutesAreDone(
             launch, RouteWithRoutes(*launch.graph, node.inputs[static_cast<std::size_t>(at)]))},
        stream);
  }
  const RoutedInputs in = RoutedInputsOf(launch);
  ExpertProductArgs args = args_;
  args.x = FromDevicePtr<const void>(launch.input(0));
  if (args.x_type == DataType::kFloat8_e4m3) {
    args.x_scales = FromDevicePtr<const float>(launch.input(1));
  }
  args.starts = in.parts.starts + in.first;
  args.routes = in.parts.routes;
  args.shares = in.shares;
  args.out = FromDevicePtr<void>(launch.output);
  // An input of the caller may be aligned less than the arena.
  args.wide = args.wide && IsAligned(launch.input(0));
  return CudaStatus(ExpertProduct(args, stream), "a product by experts");
}

Result<std::unique_ptr<PreparedFusion>> PreparedGatedExperts::Create(
    Gemm& gemm, DeviceMemory& memory, const CudaDispatchOptions& options, const ComputeGraph& graph,
    const Fusion& fusion) {
  const ExpertNodes nodes = ExpertsOf(graph, fusion.nodes.back());
  auto grouped = GroupedExperts::Create(gemm, memory, options, graph, nodes);
  if (!grouped) return grouped.status();
  if (*grouped == nullptr) {
    return Status(StatusCode::kUnsupported,
                  DescribeFusion(graph, fusion) + ": no kernel computes the products together");
  }
  auto made = std::make_unique<PreparedGatedExperts>();
  made->grouped_ = *std::move(grouped);
  made->inputs_ = InputsOfExperts(graph, graph.node(nodes.product));
  return std::unique_ptr<PreparedFusion>(std::move(made));
}

Status PreparedGatedExperts::Launch(const NodeLaunch& launch, LaunchStream stream) const {
  const auto value = [&](int id) { return id < 0 ? 0 : launch.value(id); };
  return grouped_->Launch(
      launch,
      {.x = value(inputs_.x),
       .x_scales = value(inputs_.scales),
       .routes = value(inputs_.routes),
       .shares = value(inputs_.shares),
       .routes_done = RoutesAreDone(launch, RouteWithRoutes(*launch.graph, inputs_.routes))},
      stream);
}

}  // namespace culet::cuda_ops
