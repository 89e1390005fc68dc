#include "capi/versioned.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "culet/packing.h"

namespace culet::capi {
namespace {

// The C++ enumerators and the C constants are one list.
static_assert(static_cast<int>(DataType::kNull) == CULET_NULL);
static_assert(static_cast<int>(DataType::kFloat32) == CULET_FLOAT32);
static_assert(static_cast<int>(DataType::kFloat16) == CULET_FLOAT16);
static_assert(static_cast<int>(DataType::kBfloat16) == CULET_BFLOAT16);
static_assert(static_cast<int>(DataType::kFloat8_e4m3) == CULET_FLOAT8_E4M3);
static_assert(static_cast<int>(DataType::kFloat8_ue8m0) == CULET_FLOAT8_UE8M0);
static_assert(static_cast<int>(DataType::kInt4) == CULET_INT4);
static_assert(static_cast<int>(DataType::kUint4) == CULET_UINT4);
static_assert(static_cast<int>(DataType::kFloat4_e2m1) == CULET_FLOAT4_E2M1);
static_assert(static_cast<int>(DataType::kInt8) == CULET_INT8);
static_assert(kPackPanels64 == CULET_PACK_PANELS64);
static_assert(static_cast<int>(Order::kColMajor) == CULET_COL_MAJOR);
static_assert(static_cast<int>(Order::kRowMajor) == CULET_ROW_MAJOR);
static_assert(static_cast<int>(QuantType::kNone) == CULET_QUANT_NONE);
static_assert(static_cast<int>(QuantType::kK) == CULET_QUANT_K);
static_assert(static_cast<int>(QuantType::kB) == CULET_QUANT_B);
static_assert(static_cast<int>(QuantType::kTensor) == CULET_QUANT_TENSOR);
static_assert(static_cast<int>(QuantType::kRow) == CULET_QUANT_ROW);
static_assert(static_cast<int>(Accumulate::kPromoted) == CULET_ACCUMULATE_PROMOTED);
static_assert(static_cast<int>(Accumulate::kFast) == CULET_ACCUMULATE_FAST);
static_assert(static_cast<int>(Accumulate::kFull) == CULET_ACCUMULATE_FULL);
static_assert(static_cast<int>(Epilogue::kNone) == CULET_EPILOGUE_NONE);
static_assert(static_cast<int>(Epilogue::kGatedSilu) == CULET_EPILOGUE_GATED_SILU);
static_assert(static_cast<int>(Epilogue::kGatedSiluQuant) == CULET_EPILOGUE_GATED_SILU_QUANT);
static_assert(static_cast<int>(GateOrder::kEights) == CULET_GATE_EIGHTS);
static_assert(static_cast<int>(GateOrder::kHalves) == CULET_GATE_HALVES);
static_assert(static_cast<int>(Determinism::kFast) == CULET_DETERMINISM_FAST);
static_assert(static_cast<int>(Determinism::kRepeatable) == CULET_DETERMINISM_REPEATABLE);
static_assert(static_cast<int>(Determinism::kBatchInvariant) == CULET_DETERMINISM_BATCH_INVARIANT);
static_assert(static_cast<int>(Bias::Axis::kN) == CULET_BIAS_N);
static_assert(static_cast<int>(Bias::Axis::kM) == CULET_BIAS_M);
static_assert(static_cast<int>(StatusCode::kOk) == CULET_OK);
static_assert(static_cast<int>(StatusCode::kInvalidArgument) == CULET_INVALID_ARGUMENT);
static_assert(static_cast<int>(StatusCode::kUnsupported) == CULET_UNSUPPORTED);
static_assert(static_cast<int>(StatusCode::kOutOfRange) == CULET_OUT_OF_RANGE);
static_assert(static_cast<int>(StatusCode::kResourceExhausted) == CULET_RESOURCE_EXHAUSTED);
static_assert(static_cast<int>(StatusCode::kFailedPrecondition) == CULET_FAILED_PRECONDITION);
static_assert(static_cast<int>(StatusCode::kNotFound) == CULET_NOT_FOUND);
static_assert(static_cast<int>(StatusCode::kDataLoss) == CULET_DATA_LOSS);
static_assert(static_cast<int>(StatusCode::kIo) == CULET_IO);
static_assert(static_cast<int>(StatusCode::kWrongResult) == CULET_WRONG_RESULT);
static_assert(static_cast<int>(StatusCode::kInternal) == CULET_INTERNAL);

bool IsZero(std::uint64_t value) noexcept { return value == 0; }

}  // namespace

Status ToLayout(const std::string& name, const culet_matrix& matrix, MatrixLayout& layout) {
  CULET_RETURN_IF_ERROR(ToEnum((name + ".type").c_str(), matrix.type, layout.type));
  // An absent operand is a layout untouched, whatever else the struct holds.
  if (layout.type == DataType::kNull) return {};
  CULET_RETURN_IF_ERROR(CheckReserved(name, std::ranges::all_of(matrix.reserved, IsZero)));
  CULET_RETURN_IF_ERROR(ToEnum((name + ".order").c_str(), matrix.order, layout.order));
  layout.rows = matrix.rows;
  layout.cols = matrix.cols;
  layout.ld = matrix.ld;
  layout.pack = matrix.pack;
  layout.num = matrix.num != 0 ? matrix.num : 1;
  layout.offsets = matrix.offsets;
  layout.idxs = matrix.idxs;
  layout.batch_stride = matrix.batch_stride;
  return {};
}

culet_matrix ToMatrix(const MatrixLayout& layout) {
  culet_matrix matrix{};
  matrix.type = static_cast<std::int32_t>(layout.type);
  matrix.order = static_cast<std::int32_t>(layout.order);
  matrix.rows = layout.rows;
  matrix.cols = layout.cols;
  matrix.ld = layout.ld;
  matrix.pack = layout.pack;
  matrix.num = layout.num;
  matrix.offsets = layout.offsets;
  matrix.idxs = layout.idxs;
  matrix.batch_stride = layout.batch_stride;
  return matrix;
}

Status CheckReserved(const std::string& name, bool zero) {
  if (zero) return {};
  return Status(StatusCode::kInvalidArgument,
                name +
                    ".reserved is not 0: a newer header's field is set, or the struct was not "
                    "zeroed; clear it, or use a newer libculet");
}

Status NotAConstant(const char* name, std::int32_t value) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} is {}; use the constants of culet.h", name, value));
}

Status BadStructSize(const char* name, std::size_t size, std::size_t known) {
  return Status(StatusCode::kInvalidArgument,
                size <= known || size > kMostStructBytes
                    ? fmt::format("{}.struct_size is {}; set it to sizeof(*{})", name, size, name)
                    : fmt::format("{}.struct_size is {}, this library knows {} bytes, and a field "
                                  "behind these is set; clear it, or use a newer libculet",
                                  name, size, known));
}

Status ToGemmArgs(const culet_problem& problem, GemmArgs& args) {
  args = GemmArgs{};
  CULET_RETURN_IF_ERROR(ToLayout("a", problem.a, args.Adesc));
  CULET_RETURN_IF_ERROR(ToLayout("u", problem.u, args.Udesc));
  CULET_RETURN_IF_ERROR(ToLayout("b", problem.b, args.Bdesc));
  CULET_RETURN_IF_ERROR(ToLayout("v", problem.v, args.Vdesc));
  CULET_RETURN_IF_ERROR(ToLayout("c", problem.c, args.Cdesc));
  CULET_RETURN_IF_ERROR(ToLayout("d", problem.d, args.Ddesc));
  args.A = problem.A;
  args.U = problem.U;
  args.B = problem.B;
  args.V = problem.V;
  args.C = problem.C;
  args.D = problem.D;
  args.beta = problem.beta;
  Operation& op = args.operation;
  CULET_RETURN_IF_ERROR(ToEnum("quant_a", problem.quant_a, op.quant_a.type));
  CULET_RETURN_IF_ERROR(ToEnum("quant_b", problem.quant_b, op.quant_b.type));
  op.quant_a.group_size = problem.group_a;
  op.quant_b.group_size = problem.group_b;
  op.batch_dim = problem.batch_dim;
  op.bias.data = problem.bias;
  CULET_RETURN_IF_ERROR(ToEnum("bias_type", problem.bias_type, op.bias.type));
  CULET_RETURN_IF_ERROR(ToEnum("bias_axis", problem.bias_axis, op.bias.axis));
  op.pdl = problem.pdl != 0;
  op.sm_budget = problem.sm_budget;
  CULET_RETURN_IF_ERROR(ToEnum("accumulate", problem.accumulate, op.accumulate));
  CULET_RETURN_IF_ERROR(ToEnum("epilogue", problem.epilogue, op.epilogue));
  CULET_RETURN_IF_ERROR(ToEnum("gate_order", problem.gate_order, op.gate_order));
  op.zero_a.data = problem.zero_a;
  CULET_RETURN_IF_ERROR(ToEnum("zero_a_type", problem.zero_a_type, op.zero_a.type));
  op.zero_b.data = problem.zero_b;
  CULET_RETURN_IF_ERROR(ToEnum("zero_b_type", problem.zero_b_type, op.zero_b.type));
  CULET_RETURN_IF_ERROR(ToLayout("w", problem.w, op.quant_d.layout));
  op.quant_d.scales = problem.W;
  CULET_RETURN_IF_ERROR(ToEnum("quant_d", problem.quant_d, op.quant_d.quant.type));
  op.quant_d.quant.group_size = problem.group_d;
  return ToEnum("determinism", problem.determinism, op.determinism);
}

Status ReadProblem(const culet_problem* given, GemmArgs& args) {
  culet_problem problem;
  CULET_RETURN_IF_ERROR(Read("problem", given, problem));
  return ToGemmArgs(problem, args);
}

culet_choice ToChoice(const LaunchSpec& spec) {
  culet_choice choice{};
  CopyText(spec.kernel->id(), choice.kernel);
  choice.swizzle = spec.swizzle;
  choice.splits = spec.splits;
  choice.measured = spec.origin == Origin::kMeasured ? 1 : 0;
  choice.time_us = spec.time_us;
  choice.baseline_us = spec.baseline_us;
  choice.serial = spec.serial ? 1 : 0;
  choice.variant = spec.variant;
  return choice;
}

}  // namespace culet::capi
