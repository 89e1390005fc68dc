#include "graph/cpu_product.h"

#include "kernels/ops/ops.h"

namespace culet {
namespace {

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

}  // namespace

GemmArgs ProductArgs(std::int64_t m, const Weight& weight, const Weight& bias,
                     const QuantDesc& quant_a, const Operation& operation) {
  const auto rows = static_cast<int>(m);
  const auto n = static_cast<int>(weight.rows), k = static_cast<int>(weight.cols);
  GemmArgs args;
  args.operation = operation;
  args.Adesc = RowMajor(DataType::kFloat32, rows, k);
  args.B = FromDevicePtr<const void>(weight.data_ptr);
  args.Bdesc = ColMajor(weight.type, k, n);
  args.Ddesc = RowMajor(DataType::kFloat32, rows, n);
  if (bias.present()) {
    args.operation.bias = {FromDevicePtr<const void>(bias.data_ptr), bias.type, Bias::Axis::kN};
  }
  if (weight.quant.type == QuantType::kNone) return args;
  args.operation.quant_a = quant_a;
  args.operation.quant_b = weight.quant;
  args.Adesc.type = DataType::kFloat8_e4m3;
  const auto groups = [&](int size, int group) { return static_cast<int>(CeilDiv(size, group)); };
  args.Udesc = RowMajor(DataType::kFloat32, rows, groups(k, quant_a.group_size));
  args.V = FromDevicePtr<const void>(weight.scales_ptr);
  const int g = weight.quant.group_size;
  args.Vdesc = ColMajor(weight.scales_type, groups(k, g), groups(n, g));
  return args;
}

QuantisedRows::QuantisedRows(std::byte* memory, std::int64_t rows, std::int64_t cols) noexcept
    : values(reinterpret_cast<std::uint8_t*>(memory)),
      scales(
          reinterpret_cast<float*>(memory + PaddedTo256(static_cast<std::size_t>(rows * cols)))) {}

std::size_t QuantisedRows::Bytes(std::int64_t rows, std::int64_t cols, int group) noexcept {
  const auto scales = static_cast<std::size_t>(rows * CeilDiv(cols, group)) * sizeof(float);
  return PaddedTo256(static_cast<std::size_t>(rows * cols)) + PaddedTo256(scales);
}

std::size_t PreparedProduct::workspace_bytes() const noexcept {
  const GemmDesc& desc = plan_.desc();
  const std::size_t quantised = quant_a_.type == QuantType::kNone
                                    ? 0
                                    : QuantisedRows::Bytes(desc.m, desc.k, quant_a_.group_size);
  return quantised + plan_.workspace_size().partials;
}

Status PreparedProduct::Launch(const void* input, const float* scales, float* output,
                               std::byte* workspace, cudaStream_t stream) const {
  const GemmDesc& desc = plan_.desc();
  LaunchPointers pointers;
  pointers.A = input;
  pointers.U = scales;
  pointers.D = output;
  if (quant_a_.type != QuantType::kNone) {
    const int group = quant_a_.group_size;
    const QuantisedRows rows(workspace, desc.m, desc.k);
    ops::QuantizeRows(static_cast<const float*>(input), desc.m, desc.k, group, rows.values,
                      rows.scales);
    pointers.A = rows.values;
    pointers.U = rows.scales;
    workspace += QuantisedRows::Bytes(desc.m, desc.k, group);
  }
  // CPU kernels have no barriers that must stay zero between launches.
  Workspace memory;
  memory.partials = workspace;
  memory.partials_size = plan_.workspace_size().partials;
  return plan_.Launch(pointers, memory, stream);
}

}  // namespace culet
