#include "graph/cuda/product.h"

#include <utility>

#include "base/scales.h"
#include "cuda/error.h"
#include "graph/cpu_product.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

// The type of the input in the product.
DataType MeetingType(const ProductSpec& spec, DataType input, bool round_inputs) {
  const Weight& weight = spec.weight;
  const bool alone = weight.type == DataType::kFloat8_e4m3 && spec.quant_a == QuantDesc{};
  if (IsCode(weight.type) || alone) {
    return round_inputs || input == DataType::kBfloat16 ? DataType::kBfloat16 : DataType::kFloat32;
  }
  const bool exact = weight.type == DataType::kFloat8_e4m3 || weight.type == input;
  if (exact || weight.type == DataType::kFloat32) return weight.type;
  return round_inputs ? weight.type : DataType::kFloat32;
}

std::int64_t WeightBytes(const TensorNode& product) {
  const Weight& weight = product.params.weight;
  return BytesOf(weight.type, weight.rows * weight.cols);
}

// Whether the next kernel may begin before this product's own wait. If this product and the one
// before it together occupy more than 60 % of shared memory, the next kernel's CTAs would crowd
// onto a few SMs; then it starts only after this one ends. Measured on an H200.
bool LetsNextBeginFirst(const ProductSpec& spec, int units) {
  constexpr std::int64_t kHeld = 100'000, kThreeFifths = 137'000;  // bytes of a multiprocessor
  const bool held = spec.weight_bytes <= kHeld * units && spec.weight_bytes_before <= kHeld * units;
  return !held || spec.weight_bytes + spec.weight_bytes_before <= kThreeFifths * units;
}

}  // namespace

ProductSpec ProductSpec::Of(const ComputeGraph& graph, int id) {
  const TensorNode& node = graph.node(id);
  const TensorNode& input = graph.node(node.inputs[0]);
  ProductSpec spec;
  spec.rows = node.shape.rows;
  spec.weight = node.params.weight;
  spec.bias = node.params.bias;
  spec.quant_a = node.params.quant_a;
  spec.input_type = input.type;
  spec.output_type = node.type;
  spec.quantised = node.inputs.size() > 1;
  spec.input = input.data_ptr;
  if (spec.quantised) spec.scales = graph.node(node.inputs[1]).data_ptr;
  spec.output = node.data_ptr;
  int before = -1;
  for (int i = 0; i < graph.size(); ++i) {
    const TensorNode& other = graph.node(i);
    spec.routes = spec.routes || (other.op == TensorOp::kRoute && other.inputs[0] == id);
    if (other.op == TensorOp::kAttention && i < id) before = -1, spec.weight_bytes_before = 0;
    if (other.op != TensorOp::kMulMat) continue;
    if (other.inputs == node.inputs) {
      spec.weight_bytes += WeightBytes(other);
    } else if (i < id) {
      if (before < 0 || other.inputs != graph.node(before).inputs) spec.weight_bytes_before = 0;
      before = i;
      spec.weight_bytes_before += WeightBytes(other);
    }
  }
  return spec;
}

GemmArgs ArgsOf(const ProductSpec& spec, const CudaDispatchOptions& options, int units) {
  Operation operation;
  operation.dispatch = options.policy;
  operation.determinism = options.determinism;
  if (!options.round_product_inputs) operation.accumulate = Accumulate::kFull;
  operation.pdl = options.overlap;  // no kernel of a graph writes weights
  operation.pdl_chain = options.overlap && LetsNextBeginFirst(spec, units);
  GemmArgs args = ProductArgs(spec.rows, spec.weight, spec.bias, spec.quant_a, operation);
  args.Adesc.type =
      MeetingType(spec, spec.input_type, options.round_product_inputs && !spec.routes);
  args.Ddesc.type = spec.output_type;
  // Values of the caller may be aligned less than the arena's.
  const bool ordered = spec.weight.order_ptr != 0;
  if (args.Adesc.type == spec.input_type && !ordered)
    args.A = FromDevicePtr<const void>(spec.input);
  if (spec.quantised) args.U = FromDevicePtr<const void>(spec.scales);
  args.D = FromDevicePtr<void>(spec.output);
  if (!IsGated(spec.epilogue)) return args;
  args.operation.epilogue = spec.epilogue;
  args.operation.gate_order = GateOrder::kHalves;
  const int columns = args.Ddesc.cols / 2;
  args.Ddesc = RowMajor(args.Ddesc.type, args.Ddesc.rows, columns);
  if (spec.epilogue == Epilogue::kGatedSiluQuant) {
    args.Ddesc.type = DataType::kFloat8_e4m3;
    args.operation.quant_d.quant = {QuantType::kK, kCodesGroup};
    args.operation.quant_d.layout = RowMajor(DataType::kFloat32, args.Ddesc.rows,
                                             static_cast<int>(CeilDiv(columns, kCodesGroup)));
  }
  return args;
}

Result<std::unique_ptr<PreparedProduct>> PreparedProduct::Create(Gemm& gemm, DeviceMemory& memory,
                                                                 const CudaDispatchOptions& options,
                                                                 const ProductSpec& spec) {
  const GemmArgs args = ArgsOf(spec, options, gemm.device().units);
  auto plan = gemm.Plan(args);
  if (!plan) return plan.status();

  std::unique_ptr<PreparedProduct> made(new PreparedProduct(*std::move(plan)));
  made->input_type_ = spec.input_type;
  made->type_ = args.Adesc.type;
  made->order_ = FromDevicePtr<const std::int32_t>(spec.weight.order_ptr);
  const std::int64_t elements = spec.rows * spec.weight.cols;
  if (made->type_ != spec.input_type || made->order_ != nullptr) {
    made->converted_bytes_ = PaddedTo256(static_cast<std::size_t>(elements) * SizeOf(made->type_));
    made->scratch_bytes_ = made->converted_bytes_;
  }
  if (made->type_ == DataType::kFloat8_e4m3 && !spec.quantised) {
    made->scales_at_ = made->scratch_bytes_;
    const std::int64_t groups = CeilDiv(spec.weight.cols, spec.quant_a.group_size);
    made->scratch_bytes_ +=
        PaddedTo256(static_cast<std::size_t>(spec.rows * groups) * sizeof(float));
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
  return made;
}

Status PreparedProduct::Launch(DevicePtr input, DevicePtr input_scales, DevicePtr output,
                               DevicePtr output_scales, DevicePtr workspace,
                               LaunchStream stream) const {
  const std::int64_t m = plan_.desc().m, k = plan_.desc().k;
  LaunchPointers pointers;
  pointers.A = FromDevicePtr<const void>(input);
  pointers.D = FromDevicePtr<void>(output);
  pointers.W = FromDevicePtr<void>(output_scales);
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
    if (order_ != nullptr) {
      CULET_RETURN_IF_ERROR(
          CudaStatus(ReorderColumns(cast, order_, stream), "reordering a product's input"));
    } else {
      CULET_RETURN_IF_ERROR(CudaStatus(MoveRows(cast, stream), "rounding a product's input"));
    }
    pointers.A = cast.target;
  }
  Workspace parts = workspace_;
  parts.partials = FromDevicePtr<void>(workspace + used);
  return plan_.Launch(pointers, parts, stream.stream);
}

}  // namespace culet::cuda_ops
