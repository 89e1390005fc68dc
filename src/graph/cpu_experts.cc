#include "graph/cpu_experts.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/scales.h"
#include "graph/cpu_product.h"
#include "graph/routes.h"

namespace culet {

Result<LaunchSpec> ExpertChoices::Choose(const GemmDesc& desc, std::int64_t most,
                                         DispatchPolicy policy) {
  if (const std::uint64_t now = gemm_.cache().generation(); now != generation_) {
    known_.clear();
    generation_ = now;
  }
  const bool anchor = std::has_single_bit(static_cast<unsigned>(desc.m)) || desc.m == most;
  const bool measure = anchor && policy == DispatchPolicy::kMeasure;
  const auto known = known_.find(desc);
  // A batch's `most` may have been predicted from the measurements of a larger batch.
  if (known != known_.end() && (!measure || known->second.origin == Origin::kMeasured)) {
    return known->second;
  }
  if (policy == DispatchPolicy::kMeasure && !anchor) policy = DispatchPolicy::kDefault;
  auto spec = gemm_.Choose(desc, policy);
  // From now on the cache holds the measurements, including this one.
  if (spec && gemm_.cache().generation() == generation_) known_.insert_or_assign(desc, *spec);
  return spec;
}

namespace {

// The problem of an expert's product, whatever its weights, so that one kernel serves all.
Result<GemmDesc> CommonDesc(std::int64_t m, const ExpertWeights& experts, const QuantDesc& quant_a,
                            const Operation& operation) {
  Result<GemmDesc> common = Status();
  for (std::size_t e = 0; e < experts.weights.size(); ++e) {
    const Weight bias = experts.biases.empty() ? Weight{} : experts.biases[e];
    const auto desc = Describe(ProductArgs(m, experts.weights[e], bias, quant_a, operation), 0);
    if (!desc) return desc.status();
    if (!common) {
      common = desc;
    } else {
      common->b.align = std::min(common->b.align, desc->b.align);
      common->b.scale_align = std::min(common->b.scale_align, desc->b.scale_align);
    }
  }
  return common;
}

// Rows of a matrix of `row_bytes` a row, in the order of routes to `active` experts a token.
void Gather(const std::byte* from, std::size_t row_bytes, const std::int32_t* routes,
            std::int64_t count, int active, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<std::size_t>(i) * row_bytes,
                from + static_cast<std::size_t>(routes[i] / active) * row_bytes, row_bytes);
  }
}

}  // namespace

Result<std::unique_ptr<PreparedNode>> PreparedExperts::Create(const ComputeGraph& graph,
                                                              const TensorNode& node,
                                                              const Operation& operation,
                                                              ExpertChoices& choices) {
  auto made = std::make_unique<PreparedExperts>();
  made->experts_ = node.params.experts;
  made->quant_a_ = node.params.quant_a;
  made->operation_ = operation;
  made->active_ = node.params.routing.active;
  const TensorNode& route = RouteOf(graph, node);
  made->tokens_ = route.shape.rows;
  auto desc = CommonDesc(1, *made->experts_, made->quant_a_, operation);
  if (!desc) return desc.status();
  // Measured sizes first, so that predictions between them use all measurements.
  for (std::int64_t m = 1; m < made->tokens_; m *= 2) {
    desc->m = static_cast<int>(m);
    CULET_RETURN_IF_ERROR(choices.Choose(*desc, made->tokens_, operation.dispatch).status());
  }
  for (std::int64_t m = made->tokens_; m >= 1; --m) {
    desc->m = static_cast<int>(m);
    auto spec = choices.Choose(*desc, made->tokens_, operation.dispatch);
    if (!spec) return spec.status();
    const WorkspaceSize size = spec->kernel->workspace_size(*desc, spec->swizzle, spec->splits);
    made->partials_bytes_ = std::max(made->partials_bytes_, PaddedTo256(size.partials));
    made->specs_.push_back(*spec);
  }
  std::ranges::reverse(made->specs_);
  if (made->active_ > 0) {
    const std::int64_t k = graph.node(node.inputs[0]).shape.cols;
    made->rows_bytes_ =
        graph.node(node.inputs[0]).type == DataType::kFloat8_e4m3
            ? QuantisedRows::Bytes(made->tokens_, k, made->quant_a_)
            : PaddedTo256(static_cast<std::size_t>(made->tokens_ * k) * sizeof(float));
  }
  return std::unique_ptr<PreparedNode>(std::move(made));
}

Status PreparedExperts::Launch(const NodeLaunch& launch) const {
  const RoutedInputs in = RoutedInputsOf(launch);
  const std::int64_t n = launch.node().shape.cols, k = launch.input_node(0).shape.cols;
  const bool codes = launch.input_node(0).type == DataType::kFloat8_e4m3;
  const auto x_bytes = static_cast<std::size_t>(k) * (codes ? 1 : sizeof(float));
  const auto scale_bytes =
      codes ? static_cast<std::size_t>(InputScalesOf(quant_a_, k)) * sizeof(float) : 0;
  auto* const x = FromDevicePtr<const std::byte>(launch.input(0));
  auto* const scales = FromDevicePtr<const std::byte>(codes ? launch.input(1) : 0);
  auto* const scratch = FromDevicePtr<std::byte>(launch.workspace);
  Workspace workspace;
  workspace.partials = scratch + rows_bytes_;
  workspace.partials_size = partials_bytes_;
  const std::int32_t* const starts = in.parts.starts + in.first;
  for (std::size_t e = 0; e < experts_->weights.size(); ++e) {
    const std::int64_t first = starts[e], m = starts[e + 1] - first;
    if (m == 0) continue;
    const Weight bias = experts_->biases.empty() ? Weight{} : experts_->biases[e];
    GemmArgs args = ProductArgs(m, experts_->weights[e], bias, quant_a_, operation_);
    if (active_ > 0) {
      const std::int32_t* const routes = in.parts.routes + first;
      const QuantisedRows rows(scratch, m, k);
      Gather(x, x_bytes, routes, m, active_, scratch);
      args.A = scratch;
      if (codes) {
        Gather(scales, scale_bytes, routes, m, active_, reinterpret_cast<std::byte*>(rows.scales));
        args.U = rows.scales;
      }
    } else {
      args.A = x + static_cast<std::size_t>(first) * x_bytes;
      if (codes) args.U = scales + static_cast<std::size_t>(first) * scale_bytes;
    }
    float* const out = FromDevicePtr<float>(launch.output) + first * n;
    args.D = out;
    const LaunchSpec& spec = specs_[static_cast<std::size_t>(m - 1)];
    CULET_RETURN_IF_ERROR(
        LaunchKernel(*spec.kernel, args, spec.swizzle, spec.splits, workspace, launch.stream));
    for (std::int64_t i = 0; i < m && in.shares != nullptr; ++i) {
      const float share = in.shares[in.parts.routes[first + i]];
      for (std::int64_t c = 0; c < n; ++c) out[i * n + c] *= share;
    }
  }
  return {};
}

}  // namespace culet
