// GroupedGemm: checks and the key.
#include "culet/grouped.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "base/device_scope.h"
#include "base/trace.h"
#include "culet/desc.h"
#include "culet/grouped_class.h"
#include "culet/grouped_kernel.h"
#include "culet/kernel.h"
#include "gemm/extent.h"
#include "gemm/grouped_host.h"

namespace culet {
namespace {

constexpr int kMostMatrixRows = 1 << 30;  // of all groups' matrices

template <class... Parts>
Status Invalid(fmt::format_string<Parts...> text, const Parts&... parts) {
  return Status(StatusCode::kInvalidArgument, fmt::vformat(text, fmt::make_format_args(parts...)));
}

bool IsOneOf(DataType type, std::initializer_list<DataType> types) {
  return std::ranges::find(types, type) != types.end();
}

Status CheckSizes(const GroupedArgs& args) {
  const auto check = [](const char* name, int value, int least) {
    return value < least ? Invalid("{} is {}; give {} or more", name, value, least) : Status();
  };
  CULET_RETURN_IF_ERROR(check("groups", args.groups, 1));
  CULET_RETURN_IF_ERROR(check("rows", args.rows, 0));
  CULET_RETURN_IF_ERROR(check("a_rows", args.a_rows, 0));
  CULET_RETURN_IF_ERROR(check("n", args.n, 1));
  CULET_RETURN_IF_ERROR(check("k", args.k, 1));
  CULET_RETURN_IF_ERROR(check("expected_tokens", args.expected_tokens, 0));
  CULET_RETURN_IF_ERROR(check("expected_active", args.expected_active, 0));
  CULET_RETURN_IF_ERROR(check("expected_experts", args.expected_experts, 0));
  CULET_RETURN_IF_ERROR(check("sm_budget", args.sm_budget, 0));
  if (args.index == nullptr && args.a_rows < args.rows) {
    return Invalid("a_rows is {} and rows {}; without an index A has as many rows as D",
                   args.a_rows, args.rows);
  }
  if (std::int64_t{args.n} * (IsGatedGroup(args) ? 2 : 1) * args.groups > kMostMatrixRows) {
    return Status(StatusCode::kOutOfRange,
                  fmt::format("groups is {} and n {}; B may have 2^30 rows of all groups at most",
                              args.groups, args.n));
  }
  return {};
}

Status CheckTypes(const GroupedArgs& args) {
  using enum DataType;
  if (!IsOneOf(args.type, {kFloat8_e4m3, kBfloat16, kFloat16, kFloat32})) {
    return Invalid("type is {}; A and B are E4M3, BF16, F16 or FP32", ToString(args.type));
  }
  if (!IsOneOf(args.d_type, {kBfloat16, kFloat16, kFloat32})) {
    return Invalid("d_type is {}; D is BF16, F16 or FP32", ToString(args.d_type));
  }
  if (args.bias != nullptr && !IsOneOf(args.bias_type, {kBfloat16, kFloat16, kFloat32})) {
    return Invalid("bias_type is {}; a bias is BF16, F16 or FP32", ToString(args.bias_type));
  }
  if (args.epilogue != Epilogue::kNone && args.epilogue != Epilogue::kGatedSilu) {
    return Invalid("epilogue is {}; grouped products have none, or the gated SiLU",
                   static_cast<int>(args.epilogue));
  }
  const int unit = IsScaledGroup(args) ? kGroupedBlock : 8;
  if (IsGatedGroup(args) && args.n % unit != 0) {
    return Invalid("n is {}; the gated SiLU takes a multiple of {} columns of {}", args.n, unit,
                   ToString(args.type));
  }
  return {};
}

Status CheckStrides(const GroupedArgs& args) {
  if (args.lda < args.k)
    return Invalid("lda is {} and k {}; rows must not overlap", args.lda, args.k);
  if (args.ldd < args.n)
    return Invalid("ldd is {} and n {}; rows must not overlap", args.ldd, args.n);
  if (!IsScaledGroup(args)) return {};
  const std::int64_t blocks = GroupedBlocks(args.k), rows = std::max(args.a_rows, 1);
  // Row-major or column-major, as U of a plain product.
  if (!(args.u_block == 1 && args.u_row >= blocks) && !(args.u_row == 1 && args.u_block >= rows)) {
    return Invalid(
        "u_row is {} and u_block {}; one of them is 1, and the other at least the {} blocks "
        "of a row or the {} rows",
        args.u_row, args.u_block, blocks, args.a_rows);
  }
  return {};
}

// Inputs, where they lie.
struct Input {
  const char* name;
  const void* data;
  MatrixLayout layout;
  bool needed;
};

std::vector<Input> InputsOf(const GroupedArgs& args) {
  const int rows_b = RowsOfGroup(args), all_rows = args.groups * rows_b,
            blocks = GroupedBlocks(args.k);
  const auto vector = [](int count) { return RowMajor(DataType::kFloat32, 1, count); };  // of int32
  std::vector<Input> inputs = {
      {"A", args.A, RowMajor(args.type, args.a_rows, args.k, args.lda), args.a_rows > 0},
      {"B", args.B, RowMajor(args.type, all_rows, args.k), true},
      {"starts", args.starts, vector(args.groups + (args.counts == nullptr ? 1 : 0)), true},
      {"counts", args.counts, vector(args.groups), false},
      {"index", args.index, vector(args.rows), false},
      {"bias", args.bias, RowMajor(args.bias_type, args.groups, rows_b), false}};
  if (IsScaledGroup(args)) {
    MatrixLayout u = args.u_block == 1
                         ? RowMajor(DataType::kFloat32, args.a_rows, blocks, args.u_row)
                         : ColMajor(DataType::kFloat32, args.a_rows, blocks, args.u_block);
    inputs.push_back({"U", args.U, u, args.a_rows > 0});
    inputs.push_back({"V", args.V,
                      RowMajor(DataType::kFloat32, args.groups * GroupedBlocks(rows_b), blocks),
                      true});
  }
  return inputs;
}

Status CheckMemory(const GroupedArgs& args) {
  if (args.D == nullptr) return Invalid("D is null; the product writes it");
  const MatrixLayout d = RowMajor(args.d_type, args.rows, args.n, args.ldd);
  if (ByteExtent(d) < 0) {
    return Status(
        StatusCode::kOutOfRange,
        fmt::format("D has {} rows, {} apart, whose bytes do not fit", args.rows, args.ldd));
  }
  for (const Input& input : InputsOf(args)) {
    if (input.needed && input.data == nullptr) {
      return Invalid("{} is null; the product reads it", input.name);
    }
    if (input.data == nullptr || input.layout.rows < 1 || input.layout.cols < 1) continue;
    if (ByteExtent(input.layout) < 0) {
      return Status(StatusCode::kOutOfRange,
                    fmt::format("{} is {} x {}, whose bytes do not fit", input.name,
                                input.layout.rows, input.layout.cols));
    }
    if (Overlap(args.D, FootprintOf(d), input.data, FootprintOf(input.layout))) {
      return Invalid("D ({}) overlaps {} ({}); give D memory of its own", args.D, input.name,
                     input.data);
    }
  }
  return {};
}

// With defaults filled in. Errors: as DescribeGrouped.
Result<GroupedArgs> Checked(const GroupedArgs& given) {
  GroupedArgs args = given;
  CULET_RETURN_IF_ERROR(CheckTypes(args));
  CULET_RETURN_IF_ERROR(CheckSizes(args));
  if (args.lda == 0) args.lda = args.k;
  if (args.ldd == 0) args.ldd = args.n;
  if (args.u_row == 0 && args.u_block == 0) args.u_row = GroupedBlocks(args.k), args.u_block = 1;
  CULET_RETURN_IF_ERROR(CheckStrides(args));
  return args;
}

// As Describe: the largest power of two up to 16 that divides the address and what lies between
// rows.
std::uint8_t AlignOf(const void* data, std::int64_t bytes) noexcept {
  const std::uintptr_t both = reinterpret_cast<std::uintptr_t>(data) |
                              static_cast<std::uintptr_t>(bytes) | std::uintptr_t{16};
  return static_cast<std::uint8_t>(both & (~both + 1));
}

OperandDesc OperandOf(DataType type, const void* data, std::int64_t ld) noexcept {
  constexpr std::int64_t kShort = std::int64_t{1} << 31, kLong = std::int64_t{1} << 40;
  OperandDesc operand;
  operand.type = type;
  const std::int64_t bytes = BytesOf(type, ld);
  operand.align = AlignOf(data, bytes);
  operand.pitch = bytes < kShort ? Pitch::kShort : bytes < kLong ? Pitch::kLong : Pitch::kFar;
  return operand;
}

GemmDesc DescOf(const GroupedArgs& args, int arch) noexcept {
  const auto given = [](int value, int usual) { return value > 0 ? value : usual; };
  GemmDesc desc;
  desc.arch = arch;
  desc.group_axis = 0;
  // Without a word of the routing each of D's rows goes to one group.
  desc.m = given(args.expected_tokens, std::max(args.rows, 1));
  desc.group_active = given(args.expected_active, 1);
  desc.group_experts = given(args.expected_experts, args.groups);
  desc.num = args.groups;
  desc.n = RowsOfGroup(args);
  desc.k = args.k;
  desc.a = OperandOf(args.type, args.A, args.lda);
  desc.a.striding = args.index != nullptr ? Striding::kIndexed : Striding::kBlocked;
  desc.b = OperandOf(args.type, args.B, args.k);
  desc.b.order = desc.b.scale_order = Order::kColMajor;
  desc.b.num = args.groups;
  desc.d = OperandOf(args.d_type, args.D, args.ldd);
  desc.d.striding = Striding::kBlocked;
  if (IsScaledGroup(args)) {
    desc.a.quant = {QuantType::kK, kGroupedBlock};
    desc.b.quant = {QuantType::kB, kGroupedBlock};
    desc.a.scale_type = desc.b.scale_type = DataType::kFloat32;
    if (args.u_block != 1) desc.a.scale_order = Order::kColMajor;
  }
  desc.epilogue = args.epilogue;
  if (IsGatedGroup(args)) desc.gate_order = GateOrder::kHalves;
  if (args.bias != nullptr) desc.type_bias = args.bias_type;
  desc.sm_budget = args.sm_budget;
  desc.pdl = args.pdl;
  return desc;
}

// `chosen`: null for the engine's choice.
Status Run(Gemm& gemm, const GroupedArgs& given, const LaunchSpec* chosen, cudaStream_t stream) {
  const auto args = Checked(given);
  if (!args) return args.status();
  if (args->rows == 0) return {};
  CULET_RETURN_IF_ERROR(CheckMemory(*args));
  const TraceRange range([&] {
    return fmt::format("grouped {}x{}x{}x{}", args->groups, args->rows, args->n, args->k);
  });
  const DeviceInfo& device = gemm.device();
  if (device.arch != 0 && !IsStreamOf(stream, device.ordinal))
    return StreamOfAnother(device.ordinal);
  const GemmDesc desc = DescOf(*args, device.arch);
  LaunchSpec spec;
  if (chosen != nullptr) {
    spec = *chosen;
  } else {
    const auto found = gemm.Choose(desc);
    if (!found) return found.status();
    spec = *found;
  }
  const auto* const kernel = dynamic_cast<const GroupedKernel*>(spec.kernel);
  if (kernel == nullptr) return Invalid("spec.kernel computes no grouped products");
  if (chosen != nullptr) {
    if (const std::string refusal = WhyNot(*kernel, desc); !refusal.empty()) {
      return Status(StatusCode::kUnsupported,
                    fmt::format("{} does not take {}: {}", kernel->id(), ToString(desc), refusal));
    }
  }
  if (device.arch == 0) return kernel->LaunchGrouped(gemm, *args, spec, stream);
  const DeviceScope scope(device.ordinal);
  return kernel->LaunchGrouped(gemm, *args, spec, stream);
}

}  // namespace

int GroupedKernel::Launch(const Operation&, float, const void*, const MatrixLayout&, const void*,
                          const MatrixLayout&, const void*, const MatrixLayout&, const void*,
                          const MatrixLayout&, float, const void*, const MatrixLayout&, void*,
                          const MatrixLayout&, int, int, Workspace&, cudaStream_t) {
  return static_cast<int>(StatusCode::kUnsupported);
}

Result<GemmDesc> DescribeGrouped(const GroupedArgs& given, int arch) {
  const auto args = Checked(given);
  if (!args) return args.status();
  return DescOf(*args, arch);
}

Status GroupedGemm(Gemm& gemm, const GroupedArgs& args, cudaStream_t stream) {
  return Run(gemm, args, nullptr, stream);
}

Status GroupedGemm(Gemm& gemm, const GroupedArgs& args, const LaunchSpec& spec,
                   cudaStream_t stream) {
  return Run(gemm, args, &spec, stream);
}

}  // namespace culet
