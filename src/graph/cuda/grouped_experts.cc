#include "graph/cuda/grouped_experts.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/scales.h"
#include "cuda/error.h"
#include "culet/grouped.h"
#include "graph/cpu_product.h"
#include "graph/routes.h"
#include "kernels/cuda_ops/gather_routes.h"

namespace culet::cuda_ops {
namespace {

constexpr std::int64_t kBlock = 128;
constexpr int kHopper = 900;
constexpr int kMostGathered = 32;  // rows of a tile of a kernel that gathers by itself

// The address of expert 0's part, and what lies between an expert's and the next one's.
struct Strided {
  DevicePtr first = 0;
  std::int64_t step = 0;  // bytes
};

template <class Address>
std::optional<Strided> StridesOf(std::size_t count, Address address) {
  Strided found{address(0), 0};
  if (found.first == 0) return std::nullopt;
  const auto at = [&](std::size_t e) { return static_cast<std::int64_t>(address(e)); };
  if (count > 1) found.step = at(1) - at(0);
  for (std::size_t e = 1; e < count; ++e) {
    if (at(e) - at(e - 1) != found.step) return std::nullopt;
  }
  return found.step < 0 ? std::nullopt : std::optional(found);
}

std::optional<Strided> DataOf(const ExpertWeights& experts) {
  return StridesOf(experts.weights.size(),
                   [&](std::size_t e) { return experts.weights[e].data_ptr; });
}
std::optional<Strided> ScalesOf(const ExpertWeights& experts) {
  return StridesOf(experts.weights.size(),
                   [&](std::size_t e) { return experts.weights[e].scales_ptr; });
}

// The type in which rows of X meet the weights (MeetingType of dense products).
DataType MeetingType(DataType weight, DataType input, bool rounds) {
  return weight == input || rounds ? weight : DataType::kNull;
}

// A problem without the addresses that come with a launch.
std::optional<sm90::GroupedProblem> FindProblem(const DeviceInfo& device,
                                                const CudaDispatchOptions& options,
                                                const ComputeGraph& graph,
                                                const ExpertNodes& nodes) {
  if (device.arch != kHopper) return std::nullopt;
  const bool gated = nodes.activation >= 0;
  const TensorNode& node = graph.node(nodes.product);
  const TensorNode& last = gated ? graph.node(nodes.activation) : node;
  const ExpertWeights& experts = *node.params.experts;
  const Weight& first = experts.weights.front();
  const DataType input = graph.node(node.inputs[0]).type;
  const bool scaled = first.type == DataType::kFloat8_e4m3;
  const bool plain = first.type == DataType::kBfloat16 || first.type == DataType::kFloat16;
  if (scaled ? input != DataType::kFloat8_e4m3
             : !plain || MeetingType(first.type, input, options.round_product_inputs) ==
                             DataType::kNull) {
    return std::nullopt;
  }
  sm90::GroupedProblem p;
  const auto data = DataOf(experts);
  if (!data) return std::nullopt;
  const std::int64_t k = graph.node(node.inputs[0]).shape.cols;
  const std::int64_t row_bytes = k * static_cast<std::int64_t>(SizeOf(first.type));
  if (data->step % row_bytes != 0) return std::nullopt;
  p.groups = static_cast<int>(experts.weights.size());
  p.rows = static_cast<int>(node.shape.rows);
  p.a_rows = static_cast<int>(graph.node(node.inputs[0]).shape.rows);
  p.n = static_cast<int>(node.shape.cols);
  p.k = static_cast<int>(k);
  p.lda = k;
  p.ldd = node.shape.cols;
  p.b = FromDevicePtr<const void>(data->first);
  p.b_group_rows = data->step / row_bytes;
  p.d_type = last.type;
  if (gated) {
    const auto up = DataOf(*graph.node(nodes.up).params.experts);
    if (!up || up->step != data->step || up->first <= data->first) return std::nullopt;
    const auto apart = static_cast<std::int64_t>(up->first - data->first);
    if (apart % row_bytes != 0) return std::nullopt;
    p.up_rows = apart / row_bytes;
    if (last.op == TensorOp::kClampedSwiGlu) {
      p.gate = sm90::GroupedGate::kClamped;
      p.limit = last.params.scalar;
      p.slope = last.params.slope;
    }
  }
  if (scaled) {
    const Shape group = WeightGroupOf(first);
    if (group.rows != kBlock || group.cols != kBlock || node.params.quant_a.type != QuantType::kK ||
        node.params.quant_a.group_size != kBlock || (gated && p.n % (kBlock / 2) != 0)) {
      return std::nullopt;
    }
    const auto scales = ScalesOf(experts);
    if (!scales || scales->step % 4 != 0) return std::nullopt;
    p.scale_b = FromDevicePtr<const float>(scales->first);
    p.scale_b_group = scales->step / 4;
    if (gated) {
      const auto up = ScalesOf(*graph.node(nodes.up).params.experts);
      if (!up || up->step != scales->step) return std::nullopt;
      p.scale_b_up =
          (static_cast<std::int64_t>(up->first) - static_cast<std::int64_t>(scales->first)) / 4;
    }
    p.scale_a_row = static_cast<int>((k + kBlock - 1) / kBlock);
    p.scale_a_block = 1;
  }
  if (!experts.biases.empty()) p.bias_type = experts.biases.front().type;
  const auto takes = [&](const auto& kernels, auto why) {
    return std::ranges::any_of(kernels, [&](const auto& kernel) {
      return kernel.gated == gated && kernel.format->type == first.type &&
             why(p, *kernel.format, gated) == nullptr;
    });
  };
  if (takes(sm90::GroupedSwapKernels(), &sm90::WhyNotGrouped) ||
      takes(sm90::GroupedSkinnyKernels(), &sm90::WhyNotGroupedSkinny)) {
    return p;
  }
  return std::nullopt;
}

// The key of the problem's choice.
Result<GemmDesc> DescOf(const ComputeGraph& graph, const ExpertNodes& nodes,
                        const sm90::GroupedProblem& p, const CudaDispatchOptions& options,
                        int arch) {
  const TensorNode& node = graph.node(nodes.product);
  const ExpertWeights& experts = *node.params.experts;
  const TensorNode& route = RouteOf(graph, node);
  GroupedArgs args;
  args.groups = p.groups;
  args.rows = p.rows;
  args.a_rows = p.a_rows;
  args.n = p.n;
  args.k = p.k;
  args.type = experts.weights.front().type;
  args.d_type = p.d_type;
  static constexpr std::int32_t kSomeIndex = 0;  // X has a row a token
  if (node.params.routing.active > 0) args.index = &kSomeIndex;
  if (!experts.biases.empty()) args.bias = &kSomeIndex, args.bias_type = p.bias_type;
  if (nodes.activation >= 0) args.epilogue = Epilogue::kGatedSilu;
  args.expected_tokens = static_cast<int>(route.shape.rows);
  args.expected_active = static_cast<int>(route.shape.cols);
  args.expected_experts = static_cast<int>(graph.node(route.inputs[0]).shape.cols);
  args.pdl = options.overlap;  // no kernel of a graph writes weights
  return DescribeGrouped(args, arch);
}

struct Choice {
  const sm90::GroupedSwapKernel* swap = nullptr;
  const sm90::GroupedSkinnyKernel* skinny = nullptr;  // null, too: there is none
  int splits = 1;

  bool found() const { return swap != nullptr || skinny != nullptr; }
};

// The engine's choice, or, if that is a kernel that does not take the graph's weights as they lie,
// the best one that does.
Result<Choice> Choose(Gemm& gemm, const GemmDesc& desc, const CudaDispatchOptions& options,
                      const sm90::GroupedProblem& problem, bool gated) {
  const auto same = [&](const LaunchSpec& spec) {
    Choice choice{.splits = spec.splits};
    for (const sm90::GroupedSwapKernel& kernel : sm90::GroupedSwapKernels()) {
      if (spec.kernel->id() == kernel.id &&
          WhyNotGrouped(problem, *kernel.format, gated) == nullptr) {
        choice.swap = &kernel;
      }
    }
    for (const sm90::GroupedSkinnyKernel& kernel : sm90::GroupedSkinnyKernels()) {
      if (spec.kernel->id() == kernel.Id() &&
          WhyNotGroupedSkinny(problem, *kernel.format, gated) == nullptr) {
        choice.skinny = &kernel;
      }
    }
    return choice;
  };
  const auto spec = gemm.Choose(desc, options.policy);
  if (!spec && spec.status().code() != StatusCode::kUnsupported) return spec.status();
  if (spec.ok()) {
    if (const Choice choice = same(*spec); choice.found()) return choice;
  }
  for (const LaunchSpec& candidate : gemm.Candidates(desc)) {
    if (const Choice choice = same(candidate); choice.found()) return choice;
  }
  return Choice{};
}

}  // namespace

ExpertInputs InputsOfExperts(const ComputeGraph& graph, const TensorNode& node) noexcept {
  const std::size_t at = RoutesInput(graph, node);
  ExpertInputs found;
  found.x = node.inputs[0];
  if (at > 1) found.scales = node.inputs[1];
  found.routes = node.inputs[at];
  if (node.inputs.size() > at + 1) found.shares = node.inputs[at + 1];
  return found;
}

ExpertNodes ExpertsOf(const ComputeGraph& graph, int activation) {
  const TensorNode& node = graph.node(activation);
  if (node.op != TensorOp::kSwiGlu && node.op != TensorOp::kClampedSwiGlu) return {};
  const int gate = node.inputs[0], up = node.inputs[1];
  const TensorNode &g = graph.node(gate), &u = graph.node(up);
  if (gate == up || g.op != TensorOp::kExpertMulMat || u.op != g.op || g.inputs != u.inputs ||
      g.params.routing.active != u.params.routing.active || g.params.quant_a != u.params.quant_a ||
      g.type != u.type) {
    return {};
  }
  const ExpertWeights &of_gate = *g.params.experts, &of_up = *u.params.experts;
  if (of_gate.biases.size() != of_up.biases.size() ||
      of_gate.weights.front().type != of_up.weights.front().type ||
      (!of_gate.biases.empty() && of_gate.biases.front().type != of_up.biases.front().type)) {
    return {};
  }
  return {.product = gate, .up = up, .activation = activation};
}

bool GroupedExperts::Takes(const DeviceInfo& device, const CudaDispatchOptions& options,
                           const ComputeGraph& graph, const ExpertNodes& nodes) {
  return FindProblem(device, options, graph, nodes).has_value();
}

Result<std::unique_ptr<GroupedExperts>> GroupedExperts::Create(Gemm& gemm, DeviceMemory& memory,
                                                               const CudaDispatchOptions& options,
                                                               const ComputeGraph& graph,
                                                               const ExpertNodes& nodes) {
  const DeviceInfo& device = gemm.device();
  auto found = FindProblem(device, options, graph, nodes);
  if (!found) return std::unique_ptr<GroupedExperts>();
  sm90::GroupedProblem& problem = *found;
  const auto desc = DescOf(graph, nodes, problem, options, device.arch);
  if (!desc) return desc.status();
  const bool gated = nodes.activation >= 0;
  const auto choice = Choose(gemm, *desc, options, problem, gated);
  if (!choice) return choice.status();
  if (!choice->found()) return std::unique_ptr<GroupedExperts>();
  const bool swap = choice->swap != nullptr;
  std::unique_ptr<GroupedExperts> made(new GroupedExperts);
  const TensorNode& node = graph.node(nodes.product);
  const TensorNode& route = RouteOf(graph, node);
  const TensorNode& input = graph.node(node.inputs[0]);
  made->experts_ = graph.node(route.inputs[0]).shape.cols;
  if (node.params.parts.present()) made->first_ = node.params.parts.first();
  made->routes_ = route.shape.rows * route.shape.cols;
  made->active_ = node.params.routing.active;
  made->has_shares_ = InputsOfExperts(graph, node).shares >= 0;
  made->input_type_ = input.type;
  made->type_ = swap ? choice->swap->format->type : choice->skinny->format->type;
  made->input_rows_ = input.shape.rows;
  const auto k = static_cast<std::size_t>(problem.k);
  if (made->type_ != made->input_type_) {
    made->converted_bytes_ =
        PaddedTo256(static_cast<std::size_t>(input.shape.rows) * k * SizeOf(made->type_));
  }
  // The kernels of many rows bring rows that lie together by TMA, which is worth a copy; those of
  // few rows gather at the same speed.
  if (made->active_ > 0 && swap && choice->swap->tokens > kMostGathered) {
    problem.a_rows = problem.rows;
    const auto rows = static_cast<std::size_t>(problem.rows);
    made->codes_bytes_ = PaddedTo256(rows * k * SizeOf(made->type_));
    made->scales_bytes_ = rows * static_cast<std::size_t>(problem.scale_a_row) * sizeof(float);
  } else if (made->active_ > 0) {
    problem.per_row = made->active_;
  }
  const ExpertWeights& experts = *node.params.experts;
  if (!experts.biases.empty()) {
    std::vector<DevicePtr> biases;
    for (std::size_t e = 0; e < experts.biases.size(); ++e) {
      biases.push_back(experts.biases[e].data_ptr);
      if (nodes.up >= 0) biases.push_back(graph.node(nodes.up).params.experts->biases[e].data_ptr);
    }
    const std::size_t bytes = biases.size() * sizeof(DevicePtr);
    auto buffer = DeviceBuffer::Create(memory, bytes);
    if (!buffer) return buffer.status();
    made->biases_ = *std::move(buffer);
    CULET_RETURN_IF_ERROR(memory.Upload(made->biases_.get(), biases.data(), bytes, nullptr));
    CULET_RETURN_IF_ERROR(memory.Synchronize(nullptr));  // launches may be on any stream
    problem.bias = FromDevicePtr<const void* const>(made->biases_.get());
  }
  const int splits = choice->splits;
  made->kernel_ = swap ? choice->swap->id : choice->skinny->Id();
  if (splits > 1) made->kernel_ += "/k" + std::to_string(splits);
  cudaError_t loaded = cudaSuccess;
  if (swap) {
    sm90::GroupedSwapLaunch launch;
    if (!PlanGroupedSwap(*choice->swap, problem, splits, device.units, &launch))
      return std::unique_ptr<GroupedExperts>();
    loaded = sm90::LoadKernel(choice->swap->function, choice->swap->smem_bytes);
    made->launch_ = launch;
  } else {
    loaded = Load(*choice->skinny);
    made->launch_ = PlanGroupedSkinny(*choice->skinny, problem, splits, device.units);
  }
  CULET_RETURN_IF_ERROR(CudaStatus(loaded, "loading " + made->kernel_));
  return made;
}

Status GroupedExperts::Launch(const NodeLaunch& launch, const ExpertAddresses& at,
                              LaunchStream stream) const {
  return std::visit([&](const auto& product) { return Start(product, launch, at, stream); },
                    launch_);
}

template <class Product>
Status GroupedExperts::Start(Product product, const NodeLaunch& launch, const ExpertAddresses& at,
                             LaunchStream stream) const {
  sm90::GroupedParams& p = product.params;
  const auto parts = PartsOfRoutes(FromDevicePtr<const std::int32_t>(at.routes), experts_, routes_);
  DevicePtr x = at.x, x_scales = at.x_scales, workspace = launch.workspace;
  if (converted_bytes_ > 0) {
    MoveRowsArgs cast;
    cast.source = FromDevicePtr<const void>(x);
    cast.source_type = input_type_;
    cast.target = FromDevicePtr<void>(workspace);
    cast.target_type = type_;
    cast.source_rows = cast.target_rows = cast.rows = input_rows_;
    cast.cols = p.k_bytes / static_cast<int>(SizeOf(type_));
    CULET_RETURN_IF_ERROR(CudaStatus(MoveRows(cast, stream), "rounding the input of experts"));
    x = workspace;
    workspace += static_cast<DevicePtr>(converted_bytes_);
  }
  if (codes_bytes_ > 0) {
    GatherRoutesArgs args;
    args.x = FromDevicePtr<const void>(x);
    args.x_scales = FromDevicePtr<const float>(x_scales);
    args.routes = parts.routes;
    args.active = active_;
    x = workspace;
    args.out = FromDevicePtr<void>(x);
    if (x_scales != 0) {
      x_scales = workspace + static_cast<DevicePtr>(codes_bytes_);
      args.out_scales = FromDevicePtr<float>(x_scales);
      args.scales = p.scale_a_row;
    }
    args.rows = p.rows;
    args.row_bytes = p.k_bytes;
    CULET_RETURN_IF_ERROR(CudaStatus(GatherRoutes(args, stream), "gathering rows of experts"));
  } else if (active_ > 0) {
    p.index = parts.routes;
  }
  if (!product.BindRows(FromDevicePtr<const void>(x))) {
    return Status(StatusCode::kInternal, kernel_ + ": the driver refuses a tensor map's address");
  }
  p.scale_a = FromDevicePtr<const float>(x_scales);
  p.starts = parts.starts + first_;
  p.factors = has_shares_ ? FromDevicePtr<const float>(at.shares) : nullptr;
  p.factor_index = parts.routes;
  p.d = FromDevicePtr<void>(launch.output);
  product.shape.pdl = stream.overlap;
  p.early_weights = stream.overlap && at.routes_done ? 1 : 0;
  return CudaStatus(product.Start(stream.stream), "launching " + kernel_);
}

}  // namespace culet::cuda_ops
