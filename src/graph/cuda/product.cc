#include "graph/cuda/product.h"

#include <utility>

#include "cuda/error.h"
#include "graph/cpu_product.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

// The type in which the input meets the weight.
DataType MeetingType(const Weight& weight, DataType input, bool round_inputs) {
  const bool exact = weight.type == DataType::kFloat8_e4m3 || weight.type == input;
  if (exact || weight.type == DataType::kFloat32) return weight.type;
  return round_inputs ? weight.type : DataType::kFloat32;
}

}  // namespace

Result<std::unique_ptr<PreparedNode>> PreparedProduct::Create(Gemm& gemm, DeviceMemory& memory,
                                                              const CudaDispatchOptions& options,
                                                              const ComputeGraph& graph, int id) {
  const TensorNode& node = graph.node(id);
  const TensorNode& input = graph.node(node.inputs[0]);
  const Weight& weight = node.params.weight;
  Operation operation;
  operation.dispatch = options.policy;
  operation.determinism = options.determinism;
  operation.pdl = options.overlap;  // no kernel of a graph writes weights
  GemmArgs args =
      ProductArgs(node.shape.rows, weight, node.params.bias, node.params.quant_a, operation);
  args.Adesc.type = MeetingType(weight, input.type, options.round_product_inputs);
  args.Ddesc.type = node.type;
  // Values of the caller may be aligned less than the arena's.
  if (args.Adesc.type == input.type) args.A = FromDevicePtr<const void>(input.data_ptr);
  const bool quantised = node.inputs.size() > 1;
  if (quantised) args.U = FromDevicePtr<const void>(graph.node(node.inputs[1]).data_ptr);
  args.D = FromDevicePtr<void>(node.data_ptr);
  auto plan = gemm.Plan(args);
  if (!plan) return plan.status();

  std::unique_ptr<PreparedProduct> made(new PreparedProduct(*std::move(plan)));
  made->input_type_ = input.type;
  made->type_ = args.Adesc.type;
  const std::int64_t elements = input.shape.rows * input.shape.cols;
  if (made->type_ != input.type) {
    made->converted_bytes_ = PaddedTo256(static_cast<std::size_t>(elements) * SizeOf(made->type_));
    made->scratch_bytes_ = made->converted_bytes_;
  }
  if (made->type_ == DataType::kFloat8_e4m3 && !quantised) {
    made->scales_at_ = made->scratch_bytes_;
    const std::int64_t groups = CeilDiv(input.shape.cols, node.params.quant_a.group_size);
    made->scratch_bytes_ +=
        PaddedTo256(static_cast<std::size_t>(input.shape.rows * groups) * sizeof(float));
  }
  WorkspaceSize size = made->plan_.workspace_size();
  const std::size_t partials = std::exchange(size.partials, 0);
  auto barriers = DeviceBuffer::Create(memory, size.total());
  if (!barriers) return barriers.status();
  made->barriers_ = *std::move(barriers);
  auto workspace = InitWorkspace(size, FromDevicePtr<void>(made->barriers_.get()), size.total());
  if (!workspace) return workspace.status();
  CULET_RETURN_IF_ERROR(memory.Synchronize(nullptr));  // launches may be on any stream
  made->workspace_ = *workspace;
  made->workspace_.partials_size = partials;
  made->scratch_bytes_ += PaddedTo256(partials);
  return std::unique_ptr<PreparedNode>(std::move(made));
}

Status PreparedProduct::Launch(DevicePtr input, DevicePtr input_scales, DevicePtr output,
                               DevicePtr workspace, LaunchStream stream) const {
  const std::int64_t m = plan_.desc().m, k = plan_.desc().k;
  LaunchPointers pointers;
  pointers.A = FromDevicePtr<const void>(input);
  pointers.D = FromDevicePtr<void>(output);
  std::size_t used = converted_bytes_;
  if (input_scales != 0) {
    pointers.U = FromDevicePtr<const void>(input_scales);
  } else if (type_ == DataType::kFloat8_e4m3) {
    auto* const values = FromDevicePtr<std::uint8_t>(workspace);
    auto* const scales = FromDevicePtr<float>(workspace + scales_at_);
    CULET_RETURN_IF_ERROR(CudaStatus(
        QuantizeRows(pointers.A, input_type_, m, k, values, scales, stream), "quantising"));
    pointers.A = values;
    pointers.U = scales;
    used = scratch_bytes_ - PaddedTo256(workspace_.partials_size);
  } else if (converted_bytes_ > 0) {
    MoveRowsArgs cast;
    cast.source = pointers.A;
    cast.source_type = input_type_;
    cast.target = FromDevicePtr<void>(workspace);
    cast.target_type = type_;
    cast.source_rows = cast.target_rows = cast.rows = m;
    cast.cols = k;
    CULET_RETURN_IF_ERROR(CudaStatus(MoveRows(cast, stream), "rounding a product's input"));
    pointers.A = cast.target;
  }
  Workspace parts = workspace_;
  parts.partials = FromDevicePtr<void>(workspace + used);
  return plan_.Launch(pointers, parts, stream.stream);
}

}  // namespace culet::cuda_ops
