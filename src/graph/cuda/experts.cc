#include "graph/cuda/experts.h"

#include <vector>

#include "cuda/error.h"
#include "graph/cpu_product.h"

namespace culet::cuda_ops {
namespace {

constexpr std::int64_t kGroup = 128;  // of quantised inputs
constexpr std::int64_t Groups(std::int64_t cols) noexcept { return (cols + kGroup - 1) / kGroup; }

bool IsAligned(DevicePtr pointer) noexcept { return pointer % 16 == 0; }

}  // namespace

Feasibility PreparedExperts::Supports(const TensorNode& node) {
  const Weight& first = node.params.experts->experts.front().gate;
  if (first.quant.type == QuantType::kNone) return Feasibility::Ok();
  if (first.type == DataType::kUint4) {
    return Feasibility::Refuse("the CUDA dispatch takes no weights of 4 bits yet; use the CPU");
  }
  if (node.params.quant_a.group_size != kGroup) {
    return Feasibility::Refuse("the CUDA dispatch quantises inputs in groups of 128");
  }
  for (const ExpertWeights& expert : node.params.experts->experts) {
    for (const Weight* weight : {&expert.gate, &expert.up, &expert.down}) {
      if (weight->quant.group_size != first.quant.group_size || weight->quant.group_size % 8 != 0) {
        return Feasibility::Refuse(
            "the CUDA dispatch takes experts with blocks of one size, a multiple of 8");
      }
    }
  }
  return Feasibility::Ok();
}

Result<std::unique_ptr<PreparedNode>> PreparedExperts::Create(DeviceMemory& memory,
                                                              const ComputeGraph& graph, int id) {
  const TensorNode& node = graph.node(id);
  const ExpertParams& params = *node.params.experts;
  auto made = std::make_unique<PreparedExperts>();
  ExpertsArgs& args = made->args_;
  made->input_type_ = graph.node(node.inputs[0]).type;
  made->logits_type_ = graph.node(node.inputs[1]).type;
  made->count_ = static_cast<int>(params.experts.size());
  made->renormalize_ = params.renormalize;
  args.weight_type = params.experts.front().gate.type;
  args.group = params.experts.front().gate.quant.group_size;
  args.out_type = node.type;
  args.rows = node.shape.rows;
  args.hidden = node.shape.cols;
  args.width = params.experts.front().gate.rows;
  args.active = params.active;
  args.wide_in = args.hidden % 8 == 0;
  args.wide_out = args.width % 8 == 0;
  std::vector<ExpertPointers> pointers;
  for (const ExpertWeights& expert : params.experts) {
    const auto data = [](const Weight& weight) { return FromDevicePtr<void>(weight.data_ptr); };
    const auto scales = [](const Weight& weight) {
      return FromDevicePtr<float>(weight.scales_ptr);
    };
    pointers.push_back({data(expert.gate), data(expert.up), data(expert.down), scales(expert.gate),
                        scales(expert.up), scales(expert.down)});
    args.wide_in &= IsAligned(expert.gate.data_ptr) && IsAligned(expert.up.data_ptr);
    args.wide_out &= IsAligned(expert.down.data_ptr);
  }
  const std::size_t bytes = pointers.size() * sizeof(ExpertPointers);
  auto buffer = DeviceBuffer::Create(memory, bytes);
  if (!buffer) return buffer.status();
  made->pointers_ = *std::move(buffer);
  args.experts = FromDevicePtr<const ExpertPointers>(made->pointers_.get());
  CULET_RETURN_IF_ERROR(memory.Upload(made->pointers_.get(), pointers.data(), bytes, nullptr));
  CULET_RETURN_IF_ERROR(memory.Synchronize(nullptr));  // launches may be on any stream

  std::size_t at = 0;
  const auto take = [&at](std::int64_t count, std::size_t size) {
    const std::size_t place = at;
    at += PaddedTo256(static_cast<std::size_t>(count) * size);
    return place;
  };
  const std::int64_t routes = args.rows * args.active;
  const bool quantised = args.weight_type == DataType::kFloat8_e4m3;
  take(routes, sizeof(std::int32_t));
  made->shares_ = take(routes, sizeof(float));
  made->inner_ = take(routes * args.width, sizeof(float));
  if (quantised) {
    made->x_ = take(args.rows * args.hidden, 1);
    made->x_scales_ = take(args.rows * Groups(args.hidden), sizeof(float));
    made->codes_ = take(routes * args.width, 1);
    made->codes_scales_ = take(routes * Groups(args.width), sizeof(float));
  } else if (made->input_type_ != DataType::kFloat32) {
    made->x_ = take(args.rows * args.hidden, sizeof(float));
  }
  made->workspace_bytes_ = at;
  return std::unique_ptr<PreparedNode>(std::move(made));
}

Status PreparedExperts::Launch(DevicePtr input, DevicePtr router_logits, DevicePtr output,
                               DevicePtr workspace, LaunchStream stream) const {
  ExpertsArgs args = args_;
  auto* const ids = FromDevicePtr<std::int32_t>(workspace);
  auto* const shares = FromDevicePtr<float>(workspace + shares_);
  args.ids = ids;
  args.shares = shares;
  args.x = FromDevicePtr<const void>(input);
  args.inner = FromDevicePtr<float>(workspace + inner_);
  args.inner_read = args.inner;
  args.out = FromDevicePtr<void>(output);
  CULET_RETURN_IF_ERROR(
      CudaStatus(Route(FromDevicePtr<const void>(router_logits), logits_type_, args.rows, count_,
                       args.active, renormalize_, ids, shares, stream),
                 "routing"));
  const auto quantise = [&](const void* from, DataType type, std::int64_t rows, std::int64_t cols,
                            std::size_t codes, std::size_t scales) {
    return CudaStatus(
        QuantizeRows(from, type, rows, cols, FromDevicePtr<std::uint8_t>(workspace + codes),
                     FromDevicePtr<float>(workspace + scales), stream),
        "quantising experts' inputs");
  };
  const bool quantised = args.weight_type == DataType::kFloat8_e4m3;
  if (quantised) {
    CULET_RETURN_IF_ERROR(quantise(args.x, input_type_, args.rows, args.hidden, x_, x_scales_));
    args.x_scales = FromDevicePtr<const float>(workspace + x_scales_);
  } else if (input_type_ != DataType::kFloat32) {
    MoveRowsArgs cast;
    cast.source = args.x;
    cast.source_type = input_type_;
    cast.target = FromDevicePtr<void>(workspace + x_);
    cast.target_type = DataType::kFloat32;
    cast.source_rows = cast.target_rows = cast.rows = args.rows;
    cast.cols = args.hidden;
    CULET_RETURN_IF_ERROR(CudaStatus(MoveRows(cast, stream), "widening experts' inputs"));
  }
  if (x_ != 0) args.x = FromDevicePtr<const void>(workspace + x_);
  // An input of the caller may be aligned less than the workspace.
  args.wide_in = args.wide_in && IsAligned(ToDevicePtr(args.x));
  CULET_RETURN_IF_ERROR(CudaStatus(ExpertsIn(args, stream), "experts' gate and up"));
  if (quantised) {
    CULET_RETURN_IF_ERROR(quantise(args.inner, DataType::kFloat32, args.rows * args.active,
                                   args.width, codes_, codes_scales_));
    args.inner_read = FromDevicePtr<const void>(workspace + codes_);
    args.inner_scales = FromDevicePtr<const float>(workspace + codes_scales_);
  }
  return CudaStatus(ExpertsOut(args, stream), "experts' down");
}

}  // namespace culet::cuda_ops
