// Describe: the checks that every problem passes, and its canonical key.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

#include "culet/desc.h"
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
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(data) |
                             static_cast<std::uint64_t>(pitch) * SizeOf(layout.type) | 16u;
  return static_cast<std::uint8_t>(1u << std::countr_zero(bits));
}

Status CheckPointer(std::string_view name, const void* data, DataType type) {
  if (reinterpret_cast<std::uintptr_t>(data) % std::max<std::size_t>(SizeOf(type), 1) != 0) {
    return Invalid(
        "{} is {}, not a multiple of {} bytes; {} elements must be aligned to their size", name,
        data, SizeOf(type), ToString(type));
  }
  return {};
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
  if (ByteExtent(layout) < 0) {
    return Status(
        StatusCode::kOutOfRange,
        fmt::format("{}desc spans {} x {} elements with ld {}: its bytes do not fit in 63 "
                    "bits; split the problem",
                    name, layout.rows, layout.cols, layout.ld));
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

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

// What shares a scale that is not a group of a given size.
std::string_view GranularityText(std::string_view operand, const QuantDesc& quant) noexcept {
  if (quant.type == QuantType::kTensor) return "tensor";
  return operand == "a" ? "row" : "column";
}

// Scales of one operand. `outer` is m for A and n for B.
Status CheckScales(std::string_view name, std::string_view operand, const QuantDesc& quant,
                   const void* data, const MatrixLayout& layout, int outer, int k) {
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
  CULET_RETURN_IF_ERROR(CheckLayout(name, data, layout));
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

Status CheckOperation(const Operation& op) {
  if (op.batch_dim != 0 && op.batch_dim != 1) {
    return Invalid("operation.batch_dim is {}; use 0 for m or 1 for n", op.batch_dim);
  }
  if (op.sm_budget < 0) {
    return Invalid("operation.sm_budget is {}; use 0 for all, or a positive count", op.sm_budget);
  }
  if (!IsNamed(op.epilogue) || !IsNamed(op.accumulate) || !IsNamed(op.determinism) ||
      !IsNamed(op.dispatch)) {
    return Invalid(
        "operation has a dispatch, epilogue, accumulate or determinism value ({}, {}, {}, "
        "{}) that names nothing; use the enumerators",
        static_cast<int>(op.dispatch), static_cast<int>(op.epilogue),
        static_cast<int>(op.accumulate), static_cast<int>(op.determinism));
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

Status CheckNoOverlap(const GemmArgs& args) {
  const Footprint d = FootprintOf(args.Ddesc);
  const auto check = [&](std::string_view name, const void* data,
                         const MatrixLayout& layout) -> Status {
    if (layout.type == DataType::kNull || !Overlap(args.D, d, data, FootprintOf(layout))) return {};
    return Invalid("D ({}) overlaps {} ({}); give D memory of its own", args.D, name, data);
  };
  CULET_RETURN_IF_ERROR(check("A", args.A, args.Adesc));
  CULET_RETURN_IF_ERROR(check("B", args.B, args.Bdesc));
  CULET_RETURN_IF_ERROR(check("U", args.U, args.Udesc));
  CULET_RETURN_IF_ERROR(check("V", args.V, args.Vdesc));
  const Bias& bias = args.operation.bias;
  CULET_RETURN_IF_ERROR(check("operation.bias.data", bias.data, LayoutOf(bias, args.Ddesc)));
  if (args.beta == 0.0f) return {};
  const bool in_place = args.C == args.D && args.Cdesc.type == args.Ddesc.type &&
                        args.Cdesc.order == args.Ddesc.order && args.Cdesc.ld == args.Ddesc.ld;
  return in_place ? Status() : check("C", args.C, args.Cdesc);
}

Striding StridingOf(const MatrixLayout& layout) noexcept {
  if (layout.idxs != nullptr) return Striding::kIndexed;
  return layout.offsets != nullptr || layout.num > 1 ? Striding::kBlocked : Striding::kFlat;
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
  CULET_RETURN_IF_ERROR(CheckShape("D", args.Ddesc, m, n, "D (m, n) = A (m, k) B (k, n)"));
  if (!IsFloat(args.Ddesc.type) && args.Ddesc.type != DataType::kFloat8_e4m3) {
    return Invalid("Ddesc.type is {}; D holds numbers: use float32, float16 or bfloat16",
                   ToString(args.Ddesc.type));
  }
  CULET_RETURN_IF_ERROR(CheckOperation(op));
  CULET_RETURN_IF_ERROR(CheckScales("U", "a", op.quant_a, args.U, args.Udesc, m, k));
  CULET_RETURN_IF_ERROR(CheckScales("V", "b", op.quant_b, args.V, args.Vdesc, n, k));
  if (args.beta != 0.0f) {
    if (args.Cdesc.type == DataType::kNull) {
      return Invalid("beta is {}, but Cdesc is empty; describe C, or set beta to 0", args.beta);
    }
    CULET_RETURN_IF_ERROR(CheckLayout("C", args.C, args.Cdesc));
    CULET_RETURN_IF_ERROR(CheckShape("C", args.Cdesc, m, n, "C has the shape of D, which"));
  }
  return CheckNoOverlap(args);
}

// An operand's part of the key; what it lacks stays as in `usual`.
OperandDesc DescOf(const void* data, const MatrixLayout& layout, const QuantDesc& quant,
                   const void* scales, const MatrixLayout& scale_layout, OperandDesc usual) {
  usual.type = layout.type;
  usual.order = layout.order;
  usual.striding = StridingOf(layout);
  usual.align = AlignmentClass(data, layout);
  usual.pack = layout.pack;
  usual.quant = quant;
  if (quant.type == QuantType::kNone) return usual;
  usual.scale_type = scale_layout.type;
  usual.scale_order = scale_layout.order;
  usual.scale_align = AlignmentClass(scales, scale_layout);
  usual.scale_pack = scale_layout.pack;
  return usual;
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
  desc.a = DescOf(args.A, args.Adesc, op.quant_a, args.U, args.Udesc, desc.a);
  desc.b = DescOf(args.B, args.Bdesc, op.quant_b, args.V, args.Vdesc, desc.b);
  desc.d = DescOf(args.D, args.Ddesc, {}, nullptr, {}, desc.d);
  if (args.beta != 0.0f) desc.c = DescOf(args.C, args.Cdesc, {}, nullptr, {}, desc.c);
  desc.c.order = desc.c.type != DataType::kNull ? args.Cdesc.order : args.Ddesc.order;
  desc.epilogue = op.epilogue;
  desc.type_bias = op.bias.type;
  desc.bias_axis = op.bias.data != nullptr ? op.bias.axis : Bias::Axis::kN;
  desc.batch_dim = op.batch_dim;
  desc.m = args.Adesc.rows;
  desc.n = args.Bdesc.cols;
  desc.k = args.Adesc.cols;
  desc.num = std::max({args.Adesc.num, args.Bdesc.num, args.Ddesc.num});
  desc.group_axis = desc.num > 1 ? op.batch_dim : -1;
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
  scales("U", "a", desc.a);
  scales("V", "b", desc.b);
  if (desc.c.type != DataType::kNull) text += fmt::format(" + C {}", ToString(desc.c.type));
  if (desc.type_bias != DataType::kNull) {
    text += fmt::format(" + bias {} per {}", ToString(desc.type_bias),
                        desc.bias_axis == Bias::Axis::kN ? "column" : "row");
  }
  if (desc.epilogue != Epilogue::kNone) text += fmt::format(" {}", ToString(desc.epilogue));
  const GemmDesc usual;
  const auto order = [&](std::string_view name, Order value, Order expected) {
    if (value != expected) text += fmt::format(" {} {}-major", name, ToString(value));
  };
  order("A", desc.a.order, usual.a.order);
  order("B", desc.b.order, usual.b.order);
  order("D", desc.d.order, usual.d.order);
  const int align = std::min({desc.a.align, desc.b.align, desc.c.align, desc.d.align,
                              desc.a.scale_align, desc.b.scale_align});
  if (align < 16) text += fmt::format(" aligned to {}", align);
  if (desc.num > 1) text += fmt::format(" num={}", desc.num);
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
