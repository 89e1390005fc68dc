#include "graph/cpu_experts.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "graph/cpu_product.h"
#include "kernels/ops/ops.h"

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

struct PreparedExperts::Memory {
  std::int32_t* ids;     // (tokens, active)
  float* shares;         // (tokens, active)
  std::int32_t* routed;  // routes of one expert: token * active + place
  float* rows;           // (tokens, hidden): an expert's tokens
  float* gate;           // (tokens, width)
  float* up;             // (tokens, width)
  float* down;           // (tokens, hidden)
  std::byte* quantised;
  std::byte* partials;
};

namespace {

// The problem of an expert's product, whatever its weights, so that one kernel serves all.
Result<GemmDesc> CommonDesc(std::int64_t m, const ExpertParams& params, const QuantDesc& quant_a,
                            const Operation& operation, bool down) {
  Result<GemmDesc> common = Status();
  const auto add = [&](const Weight& weight) -> Status {
    const auto desc = Describe(ProductArgs(m, weight, {}, quant_a, operation), 0);
    if (!desc) return desc.status();
    if (!common) {
      common = desc;
    } else {
      common->b.align = std::min(common->b.align, desc->b.align);
      common->b.scale_align = std::min(common->b.scale_align, desc->b.scale_align);
    }
    return {};
  };
  for (const ExpertWeights& expert : params.experts) {
    if (down) {
      CULET_RETURN_IF_ERROR(add(expert.down));
    } else {
      CULET_RETURN_IF_ERROR(add(expert.gate));
      CULET_RETURN_IF_ERROR(add(expert.up));
    }
  }
  return common;
}

}  // namespace

Result<std::unique_ptr<PreparedNode>> PreparedExperts::Create(const TensorNode& node,
                                                              const Operation& operation,
                                                              ExpertChoices& choices) {
  auto made = std::make_unique<PreparedExperts>();
  made->params_ = node.params.experts;
  made->quant_a_ = node.params.quant_a;
  made->operation_ = operation;
  made->tokens_ = node.shape.rows;
  made->hidden_ = node.shape.cols;
  made->width_ = made->params_->experts.front().gate.rows;
  for (const bool down : {false, true}) {
    auto desc = CommonDesc(1, *made->params_, made->quant_a_, operation, down);
    if (!desc) return desc.status();
    std::vector<LaunchSpec>& specs = down ? made->out_ : made->in_;
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
      specs.push_back(*spec);
    }
    std::ranges::reverse(specs);
  }
  // Sizes are computed as addresses from 256 on, so that none is a null pointer.
  const Memory last = made->Split(FromDevicePtr<std::byte>(256));
  made->workspace_bytes_ =
      static_cast<std::size_t>(ToDevicePtr(last.partials)) - 256 + made->partials_bytes_;
  return std::unique_ptr<PreparedNode>(std::move(made));
}

PreparedExperts::Memory PreparedExperts::Split(std::byte* workspace) const {
  Memory memory{};
  DevicePtr at = ToDevicePtr(workspace);
  const auto take = [&]<class T>(T*& part, std::int64_t count) {
    part = FromDevicePtr<T>(at);
    at += PaddedTo256(static_cast<std::size_t>(count) * sizeof(T));
  };
  const std::int64_t routes = tokens_ * params_->active;
  take(memory.ids, routes);
  take(memory.shares, routes);
  take(memory.routed, tokens_);
  take(memory.rows, tokens_ * hidden_);
  take(memory.gate, tokens_ * width_);
  take(memory.up, tokens_ * width_);
  take(memory.down, tokens_ * hidden_);
  std::size_t quantised = 0;
  if (quant_a_.type != QuantType::kNone) {
    quantised = QuantisedRows::Bytes(tokens_, std::max(hidden_, width_), quant_a_);
  }
  take(memory.quantised, static_cast<std::int64_t>(quantised));
  memory.partials = FromDevicePtr<std::byte>(at);
  return memory;
}

Status PreparedExperts::Multiply(const std::vector<LaunchSpec>& specs, std::int64_t m,
                                 const Weight& weight, const float* input, const Memory& memory,
                                 float* output, cudaStream_t stream) const {
  GemmArgs args = ProductArgs(m, weight, {}, quant_a_, operation_);
  args.A = input;
  if (quant_a_.type != QuantType::kNone) {
    const QuantisedRows rows(memory.quantised, m, weight.cols);
    QuantizeInput({quant_a_}, input, m, weight.cols, rows.values, rows.scales);
    args.A = rows.values;
    args.U = rows.scales;
  }
  args.D = output;
  Workspace workspace;
  workspace.partials = memory.partials;
  workspace.partials_size = partials_bytes_;
  const LaunchSpec& spec = specs[static_cast<std::size_t>(m - 1)];
  return LaunchKernel(*spec.kernel, args, spec.swizzle, spec.splits, workspace, stream);
}

Status PreparedExperts::Launch(const float* input, const float* router_logits, float* output,
                               std::byte* workspace, cudaStream_t stream) const {
  const Memory memory = Split(workspace);
  const auto count = static_cast<int>(params_->experts.size());
  const int active = params_->active;
  ops::Route(router_logits, tokens_, count, active, params_->renormalize, memory.ids,
             memory.shares);
  std::fill_n(output, tokens_ * hidden_, 0.0f);
  const auto row_bytes = static_cast<std::size_t>(hidden_) * sizeof(float);
  for (int e = 0; e < count; ++e) {
    std::int64_t m = 0;
    for (std::int64_t route = 0; route < tokens_ * active; ++route) {
      if (memory.ids[route] != e) continue;
      std::memcpy(memory.rows + m * hidden_, input + route / active * hidden_, row_bytes);
      memory.routed[m++] = static_cast<std::int32_t>(route);
    }
    if (m == 0) continue;
    const ExpertWeights& expert = params_->experts[static_cast<std::size_t>(e)];
    CULET_RETURN_IF_ERROR(Multiply(in_, m, expert.gate, memory.rows, memory, memory.gate, stream));
    CULET_RETURN_IF_ERROR(Multiply(in_, m, expert.up, memory.rows, memory, memory.up, stream));
    ops::SwiGlu(memory.gate, memory.up, memory.gate, static_cast<std::size_t>(m * width_));
    CULET_RETURN_IF_ERROR(Multiply(out_, m, expert.down, memory.gate, memory, memory.down, stream));
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t route = memory.routed[i];
      const float share = memory.shares[route];
      float* const to = output + route / active * hidden_;
      for (std::int64_t c = 0; c < hidden_; ++c) to[c] += share * memory.down[i * hidden_ + c];
    }
  }
  return {};
}

}  // namespace culet
