// The shortest useful program: a layer's product in BF16, and again with the weight and the
// activations in FP8 with block scales.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "culet/gemm.h"
#include "culet/quantize.h"

using namespace culet;

constexpr int kTokens = 4, kIn = 1024, kOut = 512;

// Chooses a kernel, prepares it once and launches it; a server keeps the plan and the workspace.
Status Multiply(Gemm& gemm, const GemmArgs& args) {
  const auto plan = gemm.Plan(args);
  if (!plan.ok()) return plan.status();
  const std::unique_ptr<void, decltype(&std::free)> buffer(
      std::aligned_alloc(256, workspace_bytes(*plan)), std::free);
  auto workspace = InitWorkspace(plan->workspace_size(), buffer.get(), workspace_bytes(*plan));
  if (!workspace) return workspace.status();
  CULET_RETURN_IF_ERROR(plan->Launch({.A = args.A, .U = args.U, .D = args.D}, *workspace));

  const auto explanation = gemm.explain(plan->desc());
  if (!explanation) return explanation.status();
  std::puts(explanation->ToString().c_str());
  return {};
}

std::uint16_t ToBf16(float value) {  // exact for the inputs below
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}
float FromBf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

Status Run() {
  auto gemm = Gemm::Create();
  if (!gemm) return gemm.status();

  // Activations (tokens, in) and a weight (out, in), both with `in` contiguous.
  std::vector<std::uint16_t> x(kTokens * kIn), w(kOut * kIn), y(kTokens * kOut);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = ToBf16(static_cast<float>(i * 7 % 19) - 9);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = ToBf16(static_cast<float>(i * 5 % 23) - 11);

  // y (tokens, out) = x (tokens, in) w^T: the weight is B, (in, out) in column-major order.
  GemmArgs args;
  args.A = x.data();
  args.Adesc = RowMajor(DataType::kBfloat16, kTokens, kIn);
  args.B = w.data();
  args.Bdesc = ColMajor(DataType::kBfloat16, kIn, kOut);
  args.D = y.data();
  args.Ddesc = RowMajor(DataType::kBfloat16, kTokens, kOut);
  CULET_RETURN_IF_ERROR(Multiply(*gemm, args));
  const std::vector<std::uint16_t> y_bf16 = y;

  // The same in FP8: one scale for 1 x 128 activations and for 128 x 128 weights.
  std::vector<std::uint8_t> x8(x.size()), w8(w.size());
  std::vector<float> x_scales(kTokens * (kIn / 128)), w_scales(kOut / 128 * (kIn / 128));
  args.U = x_scales.data();
  args.Udesc = RowMajor(DataType::kFloat32, kTokens, kIn / 128);
  args.V = w_scales.data();
  args.Vdesc = ColMajor(DataType::kFloat32, kIn / 128, kOut / 128);
  args.operation.quant_a = {QuantType::kK, 128};
  args.operation.quant_b = {QuantType::kB, 128};
  args.A = x8.data();
  args.B = w8.data();
  const MatrixLayout x_layout = args.Adesc, w_layout = args.Bdesc;
  args.Adesc.type = args.Bdesc.type = DataType::kFloat8_e4m3;
  CULET_RETURN_IF_ERROR(
      QuantizeGroups(x.data(), x_layout, x8.data(), args.Adesc, x_scales.data(), args.Udesc));
  CULET_RETURN_IF_ERROR(
      QuantizeBlocks(w.data(), w_layout, w8.data(), args.Bdesc, w_scales.data(), args.Vdesc));
  CULET_RETURN_IF_ERROR(Multiply(*gemm, args));

  // Four bits of significand: the two results are a few per cent apart.
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    difference += std::pow(FromBf16(y[i]) - FromBf16(y_bf16[i]), 2);
    norm += std::pow(FromBf16(y_bf16[i]), 2);
  }
  const double relative = std::sqrt(difference / norm);
  std::printf("FP8 differs from BF16 by %.2f %%\n", 100 * relative);
  if (relative > 0 && relative < 0.05) return {};
  return Status(StatusCode::kWrongResult, "expected more than 0 and less than 5 %");
}

int main() {
  const Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
