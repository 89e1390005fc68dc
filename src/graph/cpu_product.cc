#include "graph/cpu_product.h"

#include "base/scales.h"
#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet {
namespace {

// The input in the order of a weight's columns.
void Reorder(const float* x, std::int64_t rows, std::int64_t cols, const std::int32_t* order,
             float* out) {
  HostPool().Run(static_cast<int>(rows), [&](int row, int) {
    const float* const from = x + row * cols;
    float* const to = out + row * cols;
    for (std::int64_t i = 0; i < cols; ++i) to[i] = from[order[i]];
  });
}

std::size_t FloatBytes(std::int64_t count) noexcept {
  return PaddedTo256(static_cast<std::size_t>(count) * sizeof(float));
}

}  // namespace

void QuantizeInput(const InputQuantiser& by, const float* x, std::int64_t rows, std::int64_t cols,
                   std::uint8_t* codes, float* scales) {
  if (by.scale > 0) {
    ops::QuantizeRowsBy(by.scale, x, rows, cols, codes, scales);
  } else {
    ops::QuantizeRows(x, rows, cols, static_cast<int>(InputGroupOf(by.quant, cols)), codes, scales);
  }
}

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
  args.operation.quant_b = weight.quant;
  args.V = FromDevicePtr<const void>(weight.scales_ptr);
  const auto across = static_cast<int>(ScalesAcross(weight));
  args.Vdesc = ColMajor(weight.scales_type, across, static_cast<int>(ScalesOf(weight)) / across);
  if (weight.zeros_ptr != 0) {
    args.operation.zero_b = {FromDevicePtr<const void>(weight.zeros_ptr), weight.zeros_type};
  }
  if (weight.type != DataType::kFloat8_e4m3 || quant_a == QuantDesc{}) return args;
  args.operation.quant_a = quant_a;
  args.Adesc.type = DataType::kFloat8_e4m3;
  args.Udesc = RowMajor(DataType::kFloat32, rows, static_cast<int>(InputScalesOf(quant_a, k)));
  return args;
}

QuantisedRows::QuantisedRows(std::byte* memory, std::int64_t rows, std::int64_t cols) noexcept
    : values(reinterpret_cast<std::uint8_t*>(memory)),
      scales(
          reinterpret_cast<float*>(memory + PaddedTo256(static_cast<std::size_t>(rows * cols)))) {}

std::size_t QuantisedRows::Bytes(std::int64_t rows, std::int64_t cols,
                                 const QuantDesc& quant) noexcept {
  return PaddedTo256(static_cast<std::size_t>(rows * cols)) +
         FloatBytes(rows * InputScalesOf(quant, cols));
}

std::size_t PreparedProduct::workspace_bytes() const noexcept {
  const GemmDesc& desc = plan_.desc();
  std::size_t input = 0;
  if (order_ != nullptr) input = FloatBytes(std::int64_t{desc.m} * desc.k);
  if (by_.quant.type != QuantType::kNone) {
    input = QuantisedRows::Bytes(desc.m, desc.k, by_.quant);
  }
  return input + plan_.workspace_size().partials;
}

Status PreparedProduct::Launch(const void* input, const float* scales, float* output,
                               std::byte* workspace, cudaStream_t stream) const {
  const GemmDesc& desc = plan_.desc();
  LaunchPointers pointers;
  pointers.A = input;
  pointers.U = scales;
  pointers.D = output;
  if (order_ != nullptr) {
    auto* const ordered = reinterpret_cast<float*>(workspace);
    Reorder(static_cast<const float*>(input), desc.m, desc.k, order_, ordered);
    pointers.A = ordered;
    workspace += FloatBytes(std::int64_t{desc.m} * desc.k);
  }
  if (by_.quant.type != QuantType::kNone) {
    const QuantisedRows rows(workspace, desc.m, desc.k);
    QuantizeInput(by_, static_cast<const float*>(input), desc.m, desc.k, rows.values, rows.scales);
    pointers.A = rows.values;
    pointers.U = rows.scales;
    workspace += QuantisedRows::Bytes(desc.m, desc.k, by_.quant);
  }
  // CPU kernels have no barriers that must stay zero between launches.
  Workspace memory;
  memory.partials = workspace;
  memory.partials_size = plan_.workspace_size().partials;
  return plan_.Launch(pointers, memory, stream);
}

}  // namespace culet
