// Describe: the checks that every problem passes, and its canonical key.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

#include "culet/desc.h"
#include "culet/grouped_class.h"
#include "culet/packing.h"
#include "gemm/extent.h"

namespace culet {
namespace {

template <class... Args>
Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

bool IsFloat(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

// An enum read from a foreign source may hold no enumerator; its table says so.
template <class Enum>
bool IsNamed(Enum value) noexcept {
  return FromString<Enum>(ToString(value)).has_value();
}

std::uint8_t AlignmentClass(const void* data, const MatrixLayout& layout) noexcept {
  // What is packed has no pitch.
  const std::int64_t pitch = layout.pack == 0 ? layout.ld : 0;
  const std::int64_t stride = layout.num > 1 ? layout.batch_stride : 0;
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(data) |
                             static_cast<std::uint64_t>(BytesOf(layout.type, pitch)) |
                             static_cast<std::uint64_t>(BytesOf(layout.type, stride)) | 16u;
  return static_cast<std::uint8_t>(1u << std::countr_zero(bits));
}

Pitch PitchOf(const MatrixLayout& layout) noexcept {
  const std::int64_t pitch =
      layout.pack == 0 && OuterOf(layout) > 1 ? BytesOf(layout.type, layout.ld) : 0;
  const std::int64_t stride = layout.num > 1 ? BytesOf(layout.type, layout.batch_stride) : 0;
  const std::int64_t most = std::max(pitch, stride);
  if (most < std::int64_t{1} << 31) return Pitch::kShort;
  return most < std::int64_t{1} << 40 ? Pitch::kLong : Pitch::kFar;
}

Status CheckPointer(std::string_view name, const void* data, DataType type) {
  if (reinterpret_cast<std::uintptr_t>(data) % std::max<std::size_t>(SizeOf(type), 1) != 0) {
    return Invalid(
        "{} is {}, not a multiple of {} bytes; {} elements must be aligned to their size", name,
        data, SizeOf(type), ToString(type));
  }
  return {};
}

// The steps from matrix to matrix, and whether 4-bit elements begin at whole bytes.
Status CheckBatchStride(std::string_view name, const MatrixLayout& layout) {
  if (IsSubByte(layout.type) && (layout.ld % 2 != 0 || layout.batch_stride % 2 != 0)) {
    return Invalid(
        "{0}desc.ld is {1} and batch_stride {2}, but lines of {3} begin at whole bytes; make both "
        "even",
        name, layout.ld, layout.batch_stride, ToString(layout.type));
  }
  if (layout.batch_stride < 0) {
    return Invalid("{}desc.batch_stride is {}; it must be >= 0", name, layout.batch_stride);
  }
  if (layout.num == 1 && layout.batch_stride != 0) {
    return Invalid("{0}desc.batch_stride is {1} for one matrix; set {0}desc.num, or leave it 0",
                   name, layout.batch_stride);
  }
  if (layout.num > 1 && layout.offsets == nullptr && layout.batch_stride == 0) {
    return Invalid(
        "{0}desc.num is {1}, but batch_stride is 0; give the elements between two matrices, or num "
        "1 for one that all share",
        name, layout.num);
  }
  return {};
}

// Written matrices must not share an element: they follow one another, or lie side by side within
// the lines.
Status CheckApart(std::string_view name, const MatrixLayout& layout) {
  if (layout.num == 1 || layout.offsets != nullptr) return {};
  const std::int64_t inner = InnerOf(layout), span = (OuterOf(layout) - 1) * layout.ld + inner;
  if (layout.batch_stride >= span) return {};
  const bool side_by_side =
      layout.batch_stride >= inner && layout.batch_stride <= (layout.ld - inner) / (layout.num - 1);
  if (side_by_side) return {};
  return Invalid(
      "{}desc.batch_stride is {}, so that its {} matrices of {} elements overlap; use at least {}",
      name, layout.batch_stride, layout.num, span, span);
}

// One operand by itself: type, extents, ld, pointer.
Status CheckLayout(std::string_view name, const void* data, const MatrixLayout& layout) {
  if (!IsNamed(layout.type) || layout.type == DataType::kNull || layout.type == DataType::kInt32) {
    return Invalid("{}desc.type is {}; give the element type of {}", name, ToString(layout.type),
                   name);
  }
  if (!IsNamed(layout.order)) {
    return Invalid("{}desc.order is {}; use kRowMajor or kColMajor", name,
                   static_cast<int>(layout.order));
  }
  if (layout.rows < 1) return Invalid("{}desc.rows is {}; it must be >= 1", name, layout.rows);
  if (layout.cols < 1) return Invalid("{}desc.cols is {}; it must be >= 1", name, layout.cols);
  if (layout.num < 1) return Invalid("{}desc.num is {}; it must be >= 1", name, layout.num);
  if (layout.ld < InnerOf(layout)) {
    return Invalid("{}desc.ld is {}, but a {}-major {} x {} matrix needs at least {} elements",
                   name, layout.ld, ToString(layout.order), layout.rows, layout.cols,
                   InnerOf(layout));
  }
  CULET_RETURN_IF_ERROR(CheckBatchStride(name, layout));
  if (ByteExtent(layout) < 0) {
    return Status(
        StatusCode::kOutOfRange,
        fmt::format("{}desc spans {} x {} elements with ld {}{}: its bytes do not fit in 63 "
                    "bits; split the problem",
                    name, layout.rows, layout.cols, layout.ld,
                    layout.num > 1 ? fmt::format(", {} times", layout.num) : ""));
  }
  return CheckPointer(name, data, layout.type);
}

// B alone may be packed, and as Gemm::Pack leaves it.
Status CheckPack(std::string_view name, const MatrixLayout& layout) {
  if (layout.pack == 0 || layout.type == DataType::kNull) return {};
  const PackFormat* const format = FindPackFormat(layout.pack);
  if (name != "B" || format == nullptr) {
    return Invalid("{}desc.pack is {}; {}", name, layout.pack,
                   name != "B" ? "only B is packed, set it to 0"
                               : "that is no packed format, take the layout that Gemm::Pack gives");
  }
  if (const char* const reason = format->why(layout.type)) {
    return Invalid("Bdesc.type is {}, but {} {}", ToString(layout.type), format->name(), reason);
  }
  if (layout.order != Order::kColMajor || layout.ld != layout.rows || layout.num != 1) {
    return Invalid(
        "Bdesc is packed ({}), but its order, ld and num are {}, {} and {}; take the layout that "
        "Gemm::Pack gives",
        format->name(), ToString(layout.order), layout.ld, layout.num);
  }
  if (PackedBytes(layout) < 0) {
    return Status(StatusCode::kOutOfRange, "a packed B of this size does not fit in 63 bits");
  }
  return {};
}

Status CheckShape(std::string_view name, const MatrixLayout& layout, std::int64_t rows,
                  std::int64_t cols, std::string_view meaning) {
  if (layout.rows != rows || layout.cols != cols) {
    return Invalid("{}desc is {} x {}, but {} makes it {} x {}", name, layout.rows, layout.cols,
                   meaning, rows, cols);
  }
  return {};
}

// Elements of D that share a scale, and the columns of a group of gates and ups.
constexpr int kOutputGroup = 128;
constexpr int kGatedColumns = 16;

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

// The part of an operand that shares a scale, if that is not a group of a given size.
std::string_view GranularityText(std::string_view operand, const QuantDesc& quant) noexcept {
  if (quant.type == QuantType::kTensor) return "tensor";
  return operand == "a" ? "row" : "column";
}

Status CheckFlat(std::string_view name, const MatrixLayout& layout) {
  if (layout.offsets == nullptr && layout.idxs == nullptr) return {};
  return Invalid("{0}desc has offsets or idxs, but scales lie flat; leave both null", name);
}

// Scales are floats of some kind: a power of two, a short one or a whole one.
Status CheckScaleType(std::string_view name, DataType type) {
  if (IsFloat(type) || type == DataType::kFloat8_ue8m0 || type == DataType::kFloat8_e4m3) return {};
  return Invalid(
      "{}desc.type is {}; scales are float32, float16, bfloat16, float8_e4m3 or "
      "float8_ue8m0",
      name, ToString(type));
}

Status CheckZeroPoints(std::string_view operand, const ZeroPoints& zero, const QuantDesc& quant,
                       const MatrixLayout& scales) {
  if (zero.data == nullptr && zero.type == DataType::kNull) return {};
  if (quant.type == QuantType::kNone) {
    return Invalid("zero_{0} is given, but quant_{0}.type is none; zero points go with scales",
                   operand);
  }
  if (zero.data == nullptr) {
    return Invalid(
        "zero_{}.data is null, but its type is {}; give the zero points or leave both "
        "empty",
        operand, ToString(zero.type));
  }
  if (!IsNamed(zero.type) || zero.type == DataType::kNull || zero.type == DataType::kInt32 ||
      zero.type == DataType::kFloat8_ue8m0) {
    return Invalid(
        "zero_{}.type is {}; zero points are float32, float16, bfloat16, float8_e4m3, int4, uint4 "
        "or float4_e2m1",
        operand, ToString(zero.type));
  }
  if (IsSubByte(zero.type) && (scales.ld % 2 != 0 || scales.batch_stride % 2 != 0)) {
    return Invalid(
        "zero_{}.type is {}, but the scales, whose layout the zero points have, have ld {} and "
        "batch_stride {}; make both even, so that lines begin at whole bytes",
        operand, ToString(zero.type), scales.ld, scales.batch_stride);
  }
  return CheckPointer(fmt::format("zero_{}.data", operand), zero.data, zero.type);
}

// Scales of one operand. `outer` is m for A and n for B; `num` is the operand's.
Status CheckScales(std::string_view name, std::string_view operand, const QuantDesc& quant,
                   const void* data, const MatrixLayout& layout, int outer, int k, int num) {
  if (!IsNamed(quant.type)) {
    return Invalid("quant_{} has no such type ({}); use kNone, kK, kB, kTensor or kRow", operand,
                   static_cast<int>(quant.type));
  }
  if (quant.type == QuantType::kNone) {
    if (data != nullptr || layout.type != DataType::kNull) {
      return Invalid("{} is given, but quant_{}.type is none; set it, or leave {} and {}desc empty",
                     name, operand, name, name);
    }
    if (quant.group_size != 0) {
      return Invalid("quant_{}.group_size is {} without a type; set quant_{}.type", operand,
                     quant.group_size, operand);
    }
    return {};
  }
  if (HasGroupSize(quant.type) && quant.group_size < 1) {
    return Invalid("quant_{}.group_size is {}; it must be >= 1", operand, quant.group_size);
  }
  if (!HasGroupSize(quant.type) && quant.group_size != 0) {
    return Invalid("quant_{}.group_size is {}, but scales per {} have no group size; leave it 0",
                   operand, quant.group_size, GranularityText(operand, quant));
  }
  CULET_RETURN_IF_ERROR(CheckFlat(name, layout));
  CULET_RETURN_IF_ERROR(CheckLayout(name, data, layout));
  CULET_RETURN_IF_ERROR(CheckScaleType(name, layout.type));
  if (layout.num != num) {
    return Invalid("{}desc.num is {}, but its operand has {} matrices; give as many", name,
                   layout.num, num);
  }
  const ScaleGroup group = ScaleGroupOf(quant, outer, k);
  const std::int64_t groups_k = CeilDiv(k, group.k);
  const std::int64_t groups_outer = CeilDiv(outer, group.outer);
  const std::string meaning = fmt::format(
      "quant_{} ({})", operand,
      HasGroupSize(quant.type) ? fmt::format("{} {}", ToString(quant.type), quant.group_size)
                               : fmt::format("per {}", GranularityText(operand, quant)));
  return operand == "a" ? CheckShape(name, layout, groups_outer, groups_k, meaning)
                        : CheckShape(name, layout, groups_k, groups_outer, meaning);
}

// D's scales, which the epilogue writes.
Status CheckOutputQuant(const GemmArgs& args) {
  const OutputQuant& given = args.operation.quant_d;
  const MatrixLayout& d = args.Ddesc;
  if (args.operation.epilogue != Epilogue::kGatedSiluQuant) {
    if (given.quant == QuantDesc{} && given.scales == nullptr &&
        given.layout.type == DataType::kNull) {
      return {};
    }
    return Invalid(
        "operation.quant_d is given, but the epilogue is {}, which writes no scales; use "
        "gated_silu_quant, or leave quant_d empty",
        ToString(args.operation.epilogue));
  }
  if (given.quant != QuantDesc{QuantType::kK, kOutputGroup}) {
    return Invalid("operation.quant_d.quant is {} {}; the epilogue {} makes scales for k {}",
                   ToString(given.quant.type), given.quant.group_size,
                   ToString(args.operation.epilogue), kOutputGroup);
  }
  if (d.type != DataType::kFloat8_e4m3) {
    return Invalid("Ddesc.type is {}; the epilogue {} writes float8_e4m3", ToString(d.type),
                   ToString(args.operation.epilogue));
  }
  CULET_RETURN_IF_ERROR(CheckFlat("W", given.layout));
  CULET_RETURN_IF_ERROR(CheckLayout("W", given.scales, given.layout));
  if (given.layout.type != DataType::kFloat32) {
    return Invalid("Wdesc.type is {}; D's scales are float32", ToString(given.layout.type));
  }
  if (given.layout.num != d.num) {
    return Invalid("Wdesc.num is {}, but D has {} matrices; give as many", given.layout.num, d.num);
  }
  CULET_RETURN_IF_ERROR(CheckApart("W", given.layout));
  return CheckShape("W", given.layout, d.rows, CeilDiv(d.cols, kOutputGroup),
                    fmt::format("one scale for {} columns of D", kOutputGroup));
}

// D gives the number of matrices; an operand with one matrix is shared.
Status CheckBatch(const GemmArgs& args) {
  const int num = args.Ddesc.num;
  const auto check = [num](std::string_view name, const MatrixLayout& layout) -> Status {
    if (layout.type == DataType::kNull || layout.num == 1 || layout.num == num) return {};
    return Invalid(
        "{}desc.num is {}, but D has {} matrices; give as many, or 1 for one that all "
        "share",
        name, layout.num, num);
  };
  CULET_RETURN_IF_ERROR(check("A", args.Adesc));
  CULET_RETURN_IF_ERROR(check("B", args.Bdesc));
  if (args.beta != 0.0f) CULET_RETURN_IF_ERROR(check("C", args.Cdesc));
  return CheckApart("D", args.Ddesc);
}

Status CheckOperation(const Operation& op) {
  if (op.batch_dim != 0 && op.batch_dim != 1) {
    return Invalid("operation.batch_dim is {}; use 0 for m or 1 for n", op.batch_dim);
  }
  if (op.sm_budget < 0) {
    return Invalid("operation.sm_budget is {}; use 0 for all, or a positive count", op.sm_budget);
  }
  if (!IsNamed(op.epilogue) || !IsNamed(op.gate_order) || !IsNamed(op.accumulate) ||
      !IsNamed(op.determinism) || !IsNamed(op.dispatch)) {
    return Invalid(
        "operation has a dispatch, epilogue, gate_order, accumulate or determinism value ({}, {}, "
        "{}, {}, {}) that names nothing; use the enumerators",
        static_cast<int>(op.dispatch), static_cast<int>(op.epilogue),
        static_cast<int>(op.gate_order), static_cast<int>(op.accumulate),
        static_cast<int>(op.determinism));
  }
  if (!IsGated(op.epilogue) && op.gate_order != GateOrder::kEights) {
    return Invalid(
        "operation.gate_order is {}, but the epilogue {} pairs no columns; leave it at {}",
        ToString(op.gate_order), ToString(op.epilogue), ToString(GateOrder::kEights));
  }
  if (op.bias.data == nullptr) {
    if (op.bias.type != DataType::kNull) {
      return Invalid(
          "operation.bias.data is null, but its type is {}; give the vector or leave both "
          "empty",
          ToString(op.bias.type));
    }
    return {};
  }
  if (!IsFloat(op.bias.type)) {
    return Invalid("operation.bias.type is {}; use float32, float16 or bfloat16",
                   ToString(op.bias.type));
  }
  if (op.bias.axis != Bias::Axis::kN && op.bias.axis != Bias::Axis::kM) {
    return Invalid("operation.bias.axis is {}; use kN for one value a column, kM for one a row",
                   static_cast<int>(op.bias.axis));
  }
  return CheckPointer("operation.bias.data", op.bias.data, op.bias.type);
}

// `what` is written at `data`; no input may overlap it.
Status CheckNoOverlap(const GemmArgs& args, std::string_view what, const void* written,
                      const Footprint& places) {
  const auto check = [&](std::string_view name, const void* data,
                         const MatrixLayout& layout) -> Status {
    if (layout.type == DataType::kNull || !Overlap(written, places, data, FootprintOf(layout))) {
      return {};
    }
    return Invalid("{0} ({1}) overlaps {2} ({3}); give {0} memory of its own", what, written, name,
                   data);
  };
  const Operation& op = args.operation;
  CULET_RETURN_IF_ERROR(check("A", args.A, args.Adesc));
  CULET_RETURN_IF_ERROR(check("B", args.B, args.Bdesc));
  CULET_RETURN_IF_ERROR(check("U", args.U, args.Udesc));
  CULET_RETURN_IF_ERROR(check("V", args.V, args.Vdesc));
  CULET_RETURN_IF_ERROR(check("zero_a", op.zero_a.data, LayoutOf(op.zero_a, args.Udesc)));
  CULET_RETURN_IF_ERROR(check("zero_b", op.zero_b.data, LayoutOf(op.zero_b, args.Vdesc)));
  CULET_RETURN_IF_ERROR(check("operation.bias.data", op.bias.data,
                              LayoutOf(op.bias, args.Adesc.rows, args.Bdesc.cols)));
  if (args.beta == 0.0f) return {};
  const bool in_place = args.C == written && SamePlaces(args.Cdesc, args.Ddesc);
  return in_place ? Status() : check("C", args.C, args.Cdesc);
}

Status CheckOutputs(const GemmArgs& args) {
  const Footprint d = FootprintOf(args.Ddesc);
  CULET_RETURN_IF_ERROR(CheckNoOverlap(args, "D", args.D, d));
  const OutputQuant& w = args.operation.quant_d;
  if (w.layout.type == DataType::kNull) return {};
  const Footprint scales = FootprintOf(w.layout);
  if (Overlap(args.D, d, w.scales, scales)) {
    return Invalid("D ({}) overlaps its scales W ({}); give each memory of its own", args.D,
                   static_cast<const void*>(w.scales));
  }
  return CheckNoOverlap(args, "W", w.scales, scales);
}

Striding StridingOf(const MatrixLayout& layout) noexcept {
  if (layout.idxs != nullptr) return Striding::kIndexed;
  return layout.offsets != nullptr ? Striding::kBlocked : Striding::kFlat;
}

Status CheckProblem(const GemmArgs& args) {
  const Operation& op = args.operation;
  CULET_RETURN_IF_ERROR(CheckLayout("A", args.A, args.Adesc));
  CULET_RETURN_IF_ERROR(CheckLayout("B", args.B, args.Bdesc));
  CULET_RETURN_IF_ERROR(CheckLayout("D", args.D, args.Ddesc));
  CULET_RETURN_IF_ERROR(CheckPack("A", args.Adesc));
  CULET_RETURN_IF_ERROR(CheckPack("B", args.Bdesc));
  CULET_RETURN_IF_ERROR(CheckPack("D", args.Ddesc));
  CULET_RETURN_IF_ERROR(CheckPack("U", args.Udesc));
  CULET_RETURN_IF_ERROR(CheckPack("V", args.Vdesc));
  if (args.beta != 0.0f) CULET_RETURN_IF_ERROR(CheckPack("C", args.Cdesc));
  const int m = args.Adesc.rows, k = args.Adesc.cols, n = args.Bdesc.cols;
  CULET_RETURN_IF_ERROR(CheckShape("B", args.Bdesc, k, n, "A (m, k) times B (k, n)"));
  CULET_RETURN_IF_ERROR(CheckOperation(op));
  if (IsGated(op.epilogue) && n % kGatedColumns != 0) {
    return Invalid("Bdesc.cols is {}; the epilogue {} takes columns in groups of {}: pad B", n,
                   ToString(op.epilogue), kGatedColumns);
  }
  const int columns = IsGated(op.epilogue) ? n / 2 : n;
  CULET_RETURN_IF_ERROR(CheckShape("D", args.Ddesc, m, columns,
                                   IsGated(op.epilogue)
                                       ? "D (m, n / 2) of the gated A (m, k) B (k, n)"
                                       : "D (m, n) = A (m, k) B (k, n)"));
  if (!IsFloat(args.Ddesc.type) && args.Ddesc.type != DataType::kFloat8_e4m3) {
    return Invalid("Ddesc.type is {}; D holds numbers: use float32, float16 or bfloat16",
                   ToString(args.Ddesc.type));
  }
  CULET_RETURN_IF_ERROR(CheckBatch(args));
  CULET_RETURN_IF_ERROR(
      CheckScales("U", "a", op.quant_a, args.U, args.Udesc, m, k, args.Adesc.num));
  CULET_RETURN_IF_ERROR(
      CheckScales("V", "b", op.quant_b, args.V, args.Vdesc, n, k, args.Bdesc.num));
  CULET_RETURN_IF_ERROR(CheckZeroPoints("a", op.zero_a, op.quant_a, args.Udesc));
  CULET_RETURN_IF_ERROR(CheckZeroPoints("b", op.zero_b, op.quant_b, args.Vdesc));
  CULET_RETURN_IF_ERROR(CheckOutputQuant(args));
  if (args.beta != 0.0f) {
    if (args.Cdesc.type == DataType::kNull) {
      return Invalid("beta is {}, but Cdesc is empty; describe C, or set beta to 0", args.beta);
    }
    CULET_RETURN_IF_ERROR(CheckLayout("C", args.C, args.Cdesc));
    CULET_RETURN_IF_ERROR(CheckShape("C", args.Cdesc, m, n, "C has the shape of A B, which"));
  }
  return CheckOutputs(args);
}

// An operand's part of the key; what it lacks stays as in `usual`.
OperandDesc DescOf(const void* data, const MatrixLayout& layout, OperandDesc usual) {
  usual.type = layout.type;
  usual.order = layout.order;
  usual.striding = StridingOf(layout);
  usual.align = AlignmentClass(data, layout);
  usual.pitch = PitchOf(layout);
  usual.pack = layout.pack;
  usual.num = layout.num;
  return usual;
}

void AddScales(const QuantDesc& quant, const void* scales, const MatrixLayout& layout,
               DataType zero_type, OperandDesc& operand) {
  operand.quant = quant;
  if (quant.type == QuantType::kNone) return;
  operand.scale_type = layout.type;
  operand.scale_order = layout.order;
  operand.scale_align = AlignmentClass(scales, layout);
  operand.scale_pitch = PitchOf(layout);
  operand.scale_pack = layout.pack;
  operand.zero_type = zero_type;
}

// The operand of the transposed problem. Absent scales keep the defaults, so that equal problems
// have equal keys.
OperandDesc Transposed(OperandDesc operand, const OperandDesc& usual) noexcept {
  operand.order = culet::Transposed(operand.order);
  operand.scale_order = operand.scale_type != DataType::kNull
                            ? culet::Transposed(operand.scale_order)
                            : usual.scale_order;
  return operand;
}

}  // namespace

Result<GemmDesc> Describe(const GemmArgs& args, int arch) {
  CULET_RETURN_IF_ERROR(CheckProblem(args));
  const Operation& op = args.operation;
  GemmDesc desc;
  desc.arch = arch;
  desc.a = DescOf(args.A, args.Adesc, desc.a);
  AddScales(op.quant_a, args.U, args.Udesc, op.zero_a.type, desc.a);
  desc.b = DescOf(args.B, args.Bdesc, desc.b);
  AddScales(op.quant_b, args.V, args.Vdesc, op.zero_b.type, desc.b);
  desc.d = DescOf(args.D, args.Ddesc, desc.d);
  AddScales(op.quant_d.quant, op.quant_d.scales, op.quant_d.layout, DataType::kNull, desc.d);
  if (args.beta != 0.0f) desc.c = DescOf(args.C, args.Cdesc, desc.c);
  if (desc.c.type == DataType::kNull) desc.c.order = args.Ddesc.order;
  desc.epilogue = op.epilogue;
  desc.gate_order = op.gate_order;
  desc.type_bias = op.bias.type;
  desc.bias_axis = op.bias.data != nullptr ? op.bias.axis : Bias::Axis::kN;
  desc.batch_dim = op.batch_dim;
  desc.m = args.Adesc.rows;
  desc.n = args.Bdesc.cols;
  desc.k = args.Adesc.cols;
  desc.num = args.Ddesc.num;
  const auto flat = [](const OperandDesc& operand) { return operand.striding == Striding::kFlat; };
  desc.group_axis = flat(desc.a) && flat(desc.b) && flat(desc.d) ? -1 : op.batch_dim;
  desc.sm_budget = op.sm_budget;
  desc.pdl = op.pdl;
  desc.accumulate = op.accumulate;
  desc.determinism = op.determinism;
  return desc;
}

GemmDesc Transposed(const GemmDesc& desc) noexcept {
  const GemmDesc usual;
  GemmDesc t = desc;
  t.a = Transposed(desc.b, usual.a);
  t.b = Transposed(desc.a, usual.b);
  t.c = Transposed(desc.c, usual.c);
  t.d = Transposed(desc.d, usual.d);
  if (t.type_bias != DataType::kNull) {
    t.bias_axis = desc.bias_axis == Bias::Axis::kN ? Bias::Axis::kM : Bias::Axis::kN;
  }
  std::swap(t.m, t.n);
  t.batch_dim = 1 - desc.batch_dim;
  if (t.group_axis >= 0) t.group_axis = 1 - desc.group_axis;
  return t;
}

std::string ToString(const GemmDesc& desc) {
  std::string text =
      fmt::format("m={} n={} k={} {} x {} -> {}", desc.m, desc.n, desc.k, ToString(desc.a.type),
                  ToString(desc.b.type), ToString(desc.d.type));
  const auto scales = [&](std::string_view name, std::string_view of, const OperandDesc& operand) {
    const QuantDesc& quant = operand.quant;
    if (quant.type == QuantType::kNone) return;
    const char* const type = ToString(operand.scale_type);
    if (!HasGroupSize(quant.type)) {
      text += fmt::format(" {}: {} per {}", name, type, GranularityText(of, quant));
      return;
    }
    text += fmt::format(" {}: {} {}{}", name, type,
                        quant.type == QuantType::kK ? "1x" : fmt::format("{}x", quant.group_size),
                        quant.group_size);
  };
  const auto zeros = [&](const OperandDesc& operand) {
    if (operand.zero_type == DataType::kNull) return;
    text += fmt::format(" zeros {}", ToString(operand.zero_type));
  };
  scales("U", "a", desc.a);
  zeros(desc.a);
  scales("V", "b", desc.b);
  zeros(desc.b);
  if (desc.c.type != DataType::kNull) text += fmt::format(" + C {}", ToString(desc.c.type));
  if (desc.type_bias != DataType::kNull) {
    text += fmt::format(" + bias {} per {}", ToString(desc.type_bias),
                        desc.bias_axis == Bias::Axis::kN ? "column" : "row");
  }
  if (desc.epilogue != Epilogue::kNone) text += fmt::format(" {}", ToString(desc.epilogue));
  if (desc.gate_order != GateOrder::kEights)
    text += fmt::format(" of {}", ToString(desc.gate_order));
  scales("W", "d", desc.d);
  const GemmDesc usual;
  const auto order = [&](std::string_view name, Order value, Order expected) {
    if (value != expected) text += fmt::format(" {} {}-major", name, ToString(value));
  };
  order("A", desc.a.order, usual.a.order);
  order("B", desc.b.order, usual.b.order);
  order("D", desc.d.order, usual.d.order);
  const int align = std::min({desc.a.align, desc.b.align, desc.c.align, desc.d.align,
                              desc.a.scale_align, desc.b.scale_align, desc.d.scale_align});
  if (align < 16) text += fmt::format(" aligned to {}", align);
  const Pitch pitch = std::max({desc.a.pitch, desc.b.pitch, desc.c.pitch, desc.d.pitch,
                                desc.a.scale_pitch, desc.b.scale_pitch, desc.d.scale_pitch});
  if (pitch != Pitch::kShort) text += fmt::format(" {} pitches", ToString(pitch));
  if (IsGrouped(desc)) {
    text +=
        fmt::format(" grouped: {} groups, {} of {} experts{}", desc.num, desc.group_active,
                    desc.group_experts, desc.a.striding == Striding::kIndexed ? ", gathered" : "");
  } else if (desc.num > 1) {
    text += fmt::format(" num={}", desc.num);
    if (desc.a.num == 1) text += " A shared";
    if (desc.b.num == 1) text += " B shared";
    if (desc.c.type != DataType::kNull && desc.c.num == 1) text += " C shared";
  }
  if (desc.sm_budget != 0) text += fmt::format(" sm_budget={}", desc.sm_budget);
  if (desc.pdl) text += " pdl";
  if (desc.accumulate != Accumulate::kPromoted) {
    text += fmt::format(" accumulate={}", ToString(desc.accumulate));
  }
  if (desc.determinism != Determinism::kFast) {
    text += fmt::format(" {}", ToString(desc.determinism));
  }
  return text;
}

}  // namespace culet
