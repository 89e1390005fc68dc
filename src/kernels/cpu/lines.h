// A and B as lines along K in double precision, whatever they are stored as: what the reference
// multiplies.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/float_types.h"
#include "base/matrix_index.h"
#include "culet/packing.h"
#include "culet/problem.h"

namespace culet {

// A or B of one matrix of the batch, seen as lines along K: rows of A, columns of B.
struct Lines {
  const void* data;
  const MatrixLayout& layout;
  const void* scales;
  const MatrixLayout& scale_layout;
  const ZeroPoints& zero;
  const QuantDesc& quant;
  bool is_a;
  ScaleGroup group;
  std::int64_t first;        // element (0, 0) of this matrix
  std::int64_t first_scale;  // of its scales and zero points
};

inline Lines LinesOfA(const GemmArgs& args, int matrix) noexcept {
  const Operation& op = args.operation;
  const MatrixLayout& layout = args.Adesc;
  return {args.A,
          layout,
          args.U,
          args.Udesc,
          op.zero_a,
          op.quant_a,
          true,
          ScaleGroupOf(op.quant_a, layout.rows, layout.cols),
          BatchOffset(layout, matrix),
          BatchOffset(args.Udesc, matrix)};
}
inline Lines LinesOfB(const GemmArgs& args, int matrix) noexcept {
  const Operation& op = args.operation;
  const MatrixLayout& layout = args.Bdesc;
  return {args.B,
          layout,
          args.V,
          args.Vdesc,
          op.zero_b,
          op.quant_b,
          false,
          ScaleGroupOf(op.quant_b, layout.cols, layout.rows),
          BatchOffset(layout, matrix),
          BatchOffset(args.Vdesc, matrix)};
}

// Multiplies elements [k0, k0 + count) of line `outer` by their scales, less their zero points.
inline void ScaleLine(const Lines& lines, int outer, int k0, int count, double* values) noexcept {
  if (lines.quant.type == QuantType::kNone) return;
  const int line = outer / lines.group.outer;
  for (int i = 0; i < count;) {
    const int group_k = (k0 + i) / lines.group.k;
    const std::int64_t index =
        lines.first_scale + (lines.is_a ? IndexOf(lines.scale_layout, line, group_k)
                                        : IndexOf(lines.scale_layout, group_k, line));
    const double scale = LoadAsDouble(lines.scales, lines.scale_layout.type, index);
    const double zero =
        lines.zero.data != nullptr ? LoadAsDouble(lines.zero.data, lines.zero.type, index) : 0;
    const std::int64_t group_end = (std::int64_t{group_k} + 1) * lines.group.k - k0;
    const int end = static_cast<int>(std::min<std::int64_t>(count, group_end));
    for (; i < end; ++i) values[i] = (values[i] - zero) * scale;
  }
}

// `count` elements of line `outer` from `k0` on, less their zero points, times their scales. B may
// be packed in panels (kPackPanels64).
inline void LoadScaledLine(const Lines& lines, int outer, int k0, int count,
                           double* values) noexcept {
  const MatrixLayout& layout = lines.layout;
  std::int64_t first = lines.is_a ? IndexOf(layout, outer, k0) : IndexOf(layout, k0, outer);
  std::int64_t stride = (layout.order == Order::kRowMajor) == lines.is_a ? 1 : layout.ld;
  if (layout.pack == kPackPanels64) {
    first = (std::int64_t{outer} / kPanelColumns * layout.rows + k0) * kPanelColumns +
            outer % kPanelColumns;
    stride = kPanelColumns;
  }
  LoadLine(lines.data, layout.type, lines.first + first, stride, count, values);
  ScaleLine(lines, outer, k0, count, values);
}

// alpha * sum + beta * C + bias of an element of the product.
inline double FinishedSum(const GemmArgs& args, int matrix, int row, int col, double sum) noexcept {
  const Bias& bias = args.operation.bias;
  double value = sum * args.alpha;
  if (args.beta != 0.0f) {
    value +=
        args.beta * LoadAsDouble(args.C, args.Cdesc.type,
                                 BatchOffset(args.Cdesc, matrix) + IndexOf(args.Cdesc, row, col));
  }
  if (bias.data != nullptr) {
    value += LoadAsDouble(bias.data, bias.type, bias.axis == Bias::Axis::kN ? col : row);
  }
  return value;
}

inline double SiluInDouble(double x) noexcept { return x / (1 + std::exp(-x)); }

// Columns of B that make column `col` of a gated D.
struct GateColumns {
  int gate, up;
};
inline GateColumns GateColumnsOf(GateOrder order, int n, int col) noexcept {
  constexpr int kEight = 8;
  if (order == GateOrder::kHalves) return {col, n / 2 + col};
  const int gate = col / kEight * 2 * kEight + col % kEight;
  return {gate, gate + kEight};
}

}  // namespace culet
