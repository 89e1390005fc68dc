#include "kernels/cuda/any_shape.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/error.h"

namespace culet::any_shape {
namespace {

// A's rows are rows, B's are columns: `row_order` is the order in which K is contiguous.
Operand MakeOperand(const void* data, const MatrixLayout& layout, const void* scales,
                    const MatrixLayout& scale_layout, const ZeroPoints& zeros,
                    const QuantDesc& quant, Order row_order) {
  const bool is_a = row_order == Order::kRowMajor;
  Operand operand;
  operand.data = data;
  operand.type = layout.type;
  operand.row_stride = layout.order == row_order ? layout.ld : 1;
  operand.k_stride = layout.order == row_order ? 1 : layout.ld;
  if (quant.type == QuantType::kNone) return operand;
  operand.scales = scales;
  operand.scale_type = scale_layout.type;
  operand.zeros = zeros.data;
  operand.zero_type = zeros.type;
  operand.scale_row_stride = scale_layout.order == row_order ? scale_layout.ld : 1;
  operand.scale_k_stride = scale_layout.order == row_order ? 1 : scale_layout.ld;
  const ScaleGroup group = is_a ? ScaleGroupOf(quant, layout.rows, layout.cols)
                                : ScaleGroupOf(quant, layout.cols, layout.rows);
  operand.group_rows = group.outer;
  operand.group_k = group.k;
  return operand;
}

int CopyBytes(const Operand& operand) {
  if (operand.k_stride != 1) return 0;
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(operand.data) |
                             static_cast<std::uint64_t>(operand.row_stride) * SizeOf(operand.type);
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 0;
}

Output MakeOutput(const void* data, const MatrixLayout& layout) {
  Output output;
  output.data = const_cast<void*>(data);
  output.type = layout.type;
  output.row_stride = layout.order == Order::kRowMajor ? layout.ld : 1;
  output.col_stride = layout.order == Order::kRowMajor ? 1 : layout.ld;
  return output;
}

}  // namespace

Problem MakeProblem(const CompiledKernel& kernel, const GemmArgs& args, int swizzle, int splits) {
  const Operation& operation = args.operation;
  Problem p;
  Operand& b = p.operands[1];
  p.operands[0] = MakeOperand(args.A, args.Adesc, args.U, args.Udesc, operation.zero_a,
                              operation.quant_a, Order::kRowMajor);
  b = MakeOperand(args.B, args.Bdesc, args.V, args.Vdesc, operation.zero_b, operation.quant_b,
                  Order::kColMajor);
  b.copy_bytes = CopyBytes(b);
  p.m = args.Adesc.rows, p.n = args.Bdesc.cols, p.k = args.Adesc.cols;
  p.d = MakeOutput(args.D, args.Ddesc);
  if (args.Cdesc.type != DataType::kNull) p.c = MakeOutput(args.C, args.Cdesc);
  if (operation.bias.data != nullptr) {
    p.bias.data = const_cast<void*>(operation.bias.data);
    p.bias.type = operation.bias.type;
    p.bias.row_stride = operation.bias.axis == Bias::Axis::kM ? 1 : 0;
    p.bias.col_stride = 1 - p.bias.row_stride;
  }
  p.order = {CeilDiv(p.m, kernel.tile_m), CeilDiv(p.n, kernel.tile_n), swizzle,
             std::clamp(splits, 1, CeilDiv(p.k, kernel.tile_k))};
  Rebind(args.A, args.U, args.C, args.D, args.alpha, args.beta, &p);
  return p;
}

void Rebind(const void* a, const void* scales_a, const void* c, void* d, float alpha, float beta,
            Problem* problem) {
  Operand& operand = problem->operands[0];
  operand.data = a;
  operand.copy_bytes = CopyBytes(operand);
  if (operand.scale_type != DataType::kNull) operand.scales = scales_a;
  problem->c.data = const_cast<void*>(c);
  problem->d.data = d;
  problem->alpha = alpha;
  problem->beta = beta;
}

WorkspaceSize WorkspaceOf(const CompiledKernel& kernel, int m, int n, int splits) {
  WorkspaceSize size;
  if (splits <= 1) return size;
  const std::size_t tiles = static_cast<std::size_t>(CeilDiv(m, kernel.tile_m)) *
                            static_cast<std::size_t>(CeilDiv(n, kernel.tile_n));
  const std::size_t tile_bytes =
      static_cast<std::size_t>(kernel.tile_m) * kernel.tile_n * sizeof(float);
  size.barriers = tiles * sizeof(int);
  size.partials = tiles * tile_bytes * static_cast<std::size_t>(splits);
  return size;
}

int MaxSplits(const CompiledKernel& kernel, int m, int n, int k, std::size_t barriers,
              std::size_t partials) {
  const WorkspaceSize one = WorkspaceOf(kernel, m, n, 2);
  if (one.barriers > barriers) return 1;
  const std::size_t held = partials / (one.partials / 2);
  const int most = std::min(kMaxSplits, CeilDiv(k, kernel.tile_k));
  return std::max(1, static_cast<int>(std::min<std::size_t>(held, static_cast<std::size_t>(most))));
}

int GridSize(const WorkOrder& order, int sm_budget) {
  const std::int64_t most = sm_budget > 0 ? sm_budget : std::numeric_limits<int>::max();
  return static_cast<int>(std::min(order.count(), most));
}

cudaError_t Load(const CompiledKernel& kernel) {
  return Taken(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    kernel.smem_bytes));
}

cudaError_t Launch(const CompiledKernel& kernel, const Problem& problem, int sm_budget,
                   const Workspace& workspace, cudaStream_t stream) {
  Problem with_workspace = problem;
  with_workspace.partials = static_cast<float*>(workspace.partials);
  with_workspace.arrived = static_cast<int*>(workspace.barriers);
  void* arguments[] = {&with_workspace};
  return Taken(cudaLaunchKernel(kernel.function,
                                dim3(static_cast<unsigned>(GridSize(problem.order, sm_budget))),
                                dim3(static_cast<unsigned>(kernel.threads)), arguments,
                                static_cast<std::size_t>(kernel.smem_bytes), stream));
}

}  // namespace culet::any_shape
