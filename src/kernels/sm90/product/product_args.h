// Makes a ProductProblem of GemmArgs, and says what no Hopper family takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/problem.h"
#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/product/product.h"

namespace culet::sm90 {

/// The type of C, D or the bias; BF16 where there is none. Requires: TakesOutput.
inline OutputType ToOutputType(DataType type) {
  return type == DataType::kFloat32   ? OutputType::kF32
         : type == DataType::kFloat16 ? OutputType::kF16
                                      : OutputType::kBf16;
}
constexpr bool TakesOutput(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

/// Tensor maps are made before A and D exist. Missing ones get some aligned address until a launch.
inline ProductProblem ToProduct(const GemmArgs& args) {
  char* const some_address = reinterpret_cast<char*>(std::uintptr_t{1} << 20);
  // A single row may have any ld.
  const auto stride = [](const MatrixLayout& layout, Order along) {
    if (layout.order != along) return 1;
    const bool row_major = along == Order::kRowMajor;
    const int lines = row_major ? layout.rows : layout.cols;
    const int inner = row_major ? layout.cols : layout.rows;
    return lines > 1 ? static_cast<int>(layout.ld) : CeilDiv(inner, 4) * 4;
  };
  ProductProblem p;
  p.m = args.Adesc.rows, p.n = args.Bdesc.cols, p.k = args.Adesc.cols;
  const auto ld = [](const MatrixLayout& layout, int rows, int columns) {
    return rows > 1 ? layout.ld : std::int64_t{CeilDiv(columns, 16)} * 16;
  };
  p.lda = ld(args.Adesc, p.m, p.k), p.ldb = ld(args.Bdesc, p.n, p.k);
  p.ldd = ld(args.Ddesc, p.m, args.Ddesc.cols);
  p.a = args.A != nullptr ? args.A : some_address;
  p.b = args.B;
  p.d = args.D != nullptr ? args.D : some_address;
  p.scale_a = static_cast<const float*>(args.U);
  p.scale_b = static_cast<const float*>(args.V);
  p.scale_a_row = stride(args.Udesc, Order::kRowMajor);
  p.scale_a_block = stride(args.Udesc, Order::kColMajor);
  p.scale_b_column = stride(args.Vdesc, Order::kColMajor);
  p.scale_b_block = stride(args.Vdesc, Order::kRowMajor);
  p.alpha = args.alpha;
  EpilogueParams& e = p.epilogue;
  const QuantDesc &quant_a = args.operation.quant_a, &quant_b = args.operation.quant_b;
  const auto last = [](const QuantDesc& quant) {
    return quant.type == QuantType::kRow || quant.type == QuantType::kTensor;
  };
  const auto step = [](const QuantDesc& quant, int ld) {
    return quant.type == QuantType::kRow ? ld : 0;
  };
  if (last(quant_a)) e.scale_a = p.scale_a;
  if (last(quant_b)) e.scale_b = p.scale_b;
  e.scale_a_step = step(quant_a, p.scale_a_row);
  e.scale_b_step = step(quant_b, p.scale_b_column);
  if (args.operation.gate_order == GateOrder::kHalves) e.up_column = p.n / 2;
  e.beta = args.beta;
  e.c = args.C;
  e.ldc = args.Cdesc.ld;
  e.c_type = ToOutputType(args.Cdesc.type);
  e.d_type = ToOutputType(args.Ddesc.type);
  const Bias& bias = args.operation.bias;
  e.bias = bias.data;
  e.bias_type = ToOutputType(bias.type);
  e.bias_step = bias.axis == Bias::Axis::kN ? 1 : 0;
  e.bias_row_step = 1 - e.bias_step;
  const OutputQuant& quant_d = args.operation.quant_d;
  e.d_scale = static_cast<float*>(quant_d.scales);
  e.d_scale_row = stride(quant_d.layout, Order::kRowMajor);
  e.d_scale_block = stride(quant_d.layout, Order::kColMajor);
  p.pdl = args.operation.pdl;
  p.pdl_chain = args.operation.pdl && args.operation.pdl_chain;
  return p;
}

/// Sizes and orders that no Hopper family takes.
inline Feasibility WhyShape(const GemmDesc& p) noexcept {
  if (std::max({p.m, p.n, p.k}) > std::numeric_limits<int>::max() - 1024) {
    return Feasibility::Refuse("m, n and k must stay 1024 below 2^31: tiles reach beyond them");
  }
  if (p.a.order != Order::kRowMajor || p.b.order != Order::kColMajor ||
      p.d.order != Order::kRowMajor) {
    return Feasibility::Refuse("takes A and D in row-major, B in column-major order");
  }
  const Pitch scales = std::max({p.a.scale_pitch, p.b.scale_pitch, p.d.scale_pitch});
  if (scales != Pitch::kShort)
    return Feasibility::Refuse("rows of scales must lie less than 2^31 bytes apart");
  if (std::max({p.a.pitch, p.b.pitch, p.d.pitch}) == Pitch::kFar)
    return Feasibility::Refuse("rows of A, B and D must lie less than 2^40 bytes apart (TMA)");
  return Feasibility::Ok();
}

/// Whether the epilogue applies a format's scales: E4M3 with one scale for all of an operand, one a
/// row of A and column of B, or none. A KernelDesc can name only one granularity.
constexpr bool ScalesLast(const FormatInfo& format) {
  return format.type == DataType::kFloat8_e4m3 && format.sums != Sums::kBlockScaled;
}

/// Scales that kernels of a format do not take. A format without a DataType takes no problem,
/// because in a KernelDesc kNull means any type.
inline Feasibility WhyScales(const GemmDesc& p, const FormatInfo& format) noexcept {
  if (format.type == DataType::kNull) {
    return Feasibility::Refuse("its operands are of a format that has no DataType");
  }
  if (format.sums == Sums::kBlockScaled &&
      (p.a.scale_type != DataType::kFloat32 || p.b.scale_type != DataType::kFloat32))
    return Feasibility::Refuse("takes FP32 scales");
  if (!ScalesLast(format)) return Feasibility::Ok();
  if (p.a.type != DataType::kFloat8_e4m3 || p.b.type != DataType::kFloat8_e4m3)
    return Feasibility::Refuse("takes A and B in E4M3");
  const auto takes = [](const QuantDesc& quant, DataType scales) {
    return quant.type == QuantType::kNone ||
           ((quant.type == QuantType::kTensor || quant.type == QuantType::kRow) &&
            scales == DataType::kFloat32);
  };
  if (!takes(p.a.quant, p.a.scale_type) || !takes(p.b.quant, p.b.scale_type))
    return Feasibility::Refuse(
        "takes one FP32 scale for all of an operand, one a row of A and column of B, or none");
  if (format.sums == Sums::kDirect && p.accumulate != Accumulate::kFast)
    return Feasibility::Refuse("sums in the tensor core's 14 bits, which accumulate=fast allows");
  return Feasibility::Ok();
}

/// Problems that wgmma kernels with promotion leave to those of Sums::kDirect, which have the same
/// tiles. As candidates of the same problem they would double the tuner's time.
inline Feasibility WhyPromoted(const GemmDesc& p, const FormatInfo& format) noexcept {
  return format.sums == Sums::kPromoted && p.accumulate == Accumulate::kFast
             ? Feasibility::Refuse("promotes within K; accumulate=fast is for sm90_fp8_fast")
             : Feasibility::Ok();
}

/// What kernels do not take that pair columns of gate and up from two halves of B.
inline Feasibility WhyHalves(const GemmDesc& p, const FormatInfo& format) noexcept {
  return format.sums == Sums::kBlockScaled && p.gate_order == GateOrder::kHalves && p.n % 256 != 0
             ? Feasibility::Refuse("takes gate and up with whole blocks of 128 columns each")
             : Feasibility::Ok();
}

/// What no kernel with block scales and a plain epilogue takes.
inline Feasibility WhyPlain(const GemmDesc& p) noexcept {
  if (const Feasibility shape = WhyShape(p); !shape.ok()) return shape;
  if (p.c.type != DataType::kNull) return Feasibility::Refuse("does not add C");
  if (p.type_bias != DataType::kNull) return Feasibility::Refuse("does not add a bias");
  return Feasibility::Ok();
}

/// What no kernel with a general epilogue takes. D of kGatedSiluQuant has one type only.
inline Feasibility WhyGeneral(const GemmDesc& p) noexcept {
  if (const Feasibility shape = WhyShape(p); !shape.ok()) return shape;
  if (p.epilogue != Epilogue::kGatedSiluQuant && !TakesOutput(p.d.type))
    return Feasibility::Refuse("writes D in BF16, F16 or F32");
  if (p.c.type != DataType::kNull && !TakesOutput(p.c.type)) {
    return Feasibility::Refuse("reads C in BF16, F16 or F32");
  }
  if (p.c.type != DataType::kNull && p.c.order != Order::kRowMajor) {
    return Feasibility::Refuse("reads C in row-major order");
  }
  if (p.type_bias != DataType::kNull && !TakesOutput(p.type_bias)) {
    return Feasibility::Refuse("adds a bias in BF16, F16 or F32");
  }
  return Feasibility::Ok();
}

/// What no kernel of this format and epilogue takes.
inline Feasibility WhyProduct(const GemmDesc& p, const FormatInfo& format,
                              EpilogueKind epilogue) noexcept {
  const Feasibility common = epilogue != EpilogueKind::kPlain ? WhyGeneral(p) : WhyPlain(p);
  return common.ok() ? WhyScales(p, format) : common;
}

}  // namespace culet::sm90
