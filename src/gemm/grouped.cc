// GroupedGemm: checks, and the host's way.
#include "culet/grouped.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <vector>

#include "base/device_scope.h"
#include "base/grouped_accelerator.h"
#include "base/trace.h"
#include "culet/desc.h"
#include "culet/kernel.h"
#include "gemm/extent.h"

namespace culet {
namespace {

constexpr int kBlock = 128;
constexpr int kMostMatrixRows = 1 << 30;  // of all groups' matrices

constexpr int Blocks(int count) noexcept { return (count + kBlock - 1) / kBlock; }
bool IsScaled(const GroupedArgs& args) noexcept { return args.type == DataType::kFloat8_e4m3; }
bool IsGated(const GroupedArgs& args) noexcept { return args.epilogue == Epilogue::kGatedSilu; }
// Rows of a group's matrix.
int RowsOfB(const GroupedArgs& args) noexcept { return IsGated(args) ? 2 * args.n : args.n; }

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
  if (std::int64_t{args.n} * (IsGated(args) ? 2 : 1) * args.groups > kMostMatrixRows) {
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
  const int unit = IsScaled(args) ? kBlock : 8;
  if (IsGated(args) && args.n % unit != 0) {
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
  if (!IsScaled(args)) return {};
  const std::int64_t blocks = Blocks(args.k), rows = std::max(args.a_rows, 1);
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
  const int rows_b = RowsOfB(args), all_rows = args.groups * rows_b, blocks = Blocks(args.k);
  const auto vector = [](int count) { return RowMajor(DataType::kFloat32, 1, count); };  // of int32
  std::vector<Input> inputs = {
      {"A", args.A, RowMajor(args.type, args.a_rows, args.k, args.lda), args.a_rows > 0},
      {"B", args.B, RowMajor(args.type, all_rows, args.k), true},
      {"starts", args.starts, vector(args.groups + (args.counts == nullptr ? 1 : 0)), true},
      {"counts", args.counts, vector(args.groups), false},
      {"index", args.index, vector(args.rows), false},
      {"bias", args.bias, RowMajor(args.bias_type, args.groups, rows_b), false}};
  if (IsScaled(args)) {
    MatrixLayout u = args.u_block == 1
                         ? RowMajor(DataType::kFloat32, args.a_rows, blocks, args.u_row)
                         : ColMajor(DataType::kFloat32, args.a_rows, blocks, args.u_block);
    inputs.push_back({"U", args.U, u, args.a_rows > 0});
    inputs.push_back(
        {"V", args.V, RowMajor(DataType::kFloat32, args.groups * Blocks(rows_b), blocks), true});
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

// Rows [begin, end) of D that are a group's.
struct Range {
  int begin, end;
};
Range RangeOf(const GroupedArgs& args, int group) noexcept {
  const std::int64_t start = args.starts[group];
  const std::int64_t end = args.counts != nullptr ? start + std::max(args.counts[group], 0)
                                                  : std::int64_t{args.starts[group + 1]};
  return {static_cast<int>(std::max<std::int64_t>(start, 0)),
          static_cast<int>(std::clamp<std::int64_t>(end, 0, args.rows))};
}

const std::byte* At(const void* data, std::int64_t bytes) noexcept {
  return static_cast<const std::byte*>(data) + bytes;
}

class HostGroups {
 public:
  HostGroups(Gemm& gemm, const GroupedArgs& args) : gemm_(gemm), args_(args) {}

  Status Run() {
    for (int group = 0; group < args_.groups; ++group) {
      const Range range = RangeOf(args_, group);
      if (range.begin < range.end) CULET_RETURN_IF_ERROR(RunGroup(group, range));
    }
    return {};
  }

 private:
  Status RunGroup(int group, const Range& range) {
    const int m = range.end - range.begin, rows_b = RowsOfB(args_), blocks = Blocks(args_.k);
    GemmArgs product;
    product.operation.sm_budget = args_.sm_budget;
    product.Adesc = RowMajor(args_.type, m, args_.k, args_.lda);
    const std::int64_t matrix = std::int64_t{group} * rows_b;
    product.B = At(args_.B, matrix * BytesOf(args_.type, args_.k));
    product.Bdesc = ColMajor(args_.type, args_.k, rows_b);
    if (IsScaled(args_)) {
      product.operation.quant_a = {QuantType::kK, kBlock};
      product.operation.quant_b = {QuantType::kB, kBlock};
      product.Udesc = args_.u_block == 1 ? RowMajor(DataType::kFloat32, m, blocks, args_.u_row)
                                         : ColMajor(DataType::kFloat32, m, blocks, args_.u_block);
      product.V = args_.V + std::int64_t{group} * Blocks(rows_b) * blocks;
      product.Vdesc = ColMajor(DataType::kFloat32, blocks, Blocks(rows_b));
    }
    if (args_.index != nullptr) {
      Gather(range, product);
    } else {
      product.A = At(args_.A, range.begin * BytesOf(args_.type, args_.lda));
      if (IsScaled(args_)) product.U = args_.U + range.begin * args_.u_row;
    }
    if (args_.bias != nullptr) {
      product.operation.bias = {At(args_.bias, matrix * BytesOf(args_.bias_type, 1)),
                                args_.bias_type, Bias::Axis::kN};
    }
    if (IsGated(args_)) {
      product.operation.epilogue = Epilogue::kGatedSilu;
      product.operation.gate_order = GateOrder::kHalves;
    }
    // The kernel is chosen for the group's own rows, whatever the others have.
    product.D = static_cast<std::byte*>(args_.D) + range.begin * BytesOf(args_.d_type, args_.ldd);
    product.Ddesc = RowMajor(args_.d_type, m, args_.n, args_.ldd);
    const auto desc = Describe(product, gemm_.device().arch);
    if (!desc) return desc.status();
    auto known = choices_.find(*desc);
    if (known == choices_.end()) {
      const auto spec = gemm_.Choose(*desc);
      if (!spec) return spec.status();
      known = choices_.emplace(*desc, *spec).first;
    }
    const LaunchSpec& spec = known->second;
    const WorkspaceSize need = spec.kernel->workspace_size(*desc, spec.swizzle, spec.splits);
    auto workspace = WorkspaceOf(need);
    if (!workspace) return workspace.status();
    return LaunchKernel(*spec.kernel, product, spec.swizzle, spec.splits, *workspace, nullptr);
  }

  // Rows of A as the index names them, and their scales, row by row.
  void Gather(const Range& range, GemmArgs& product) {
    const auto count = static_cast<std::size_t>(range.end - range.begin);
    const auto row_bytes = static_cast<std::size_t>(BytesOf(args_.type, args_.k));
    const auto blocks = static_cast<std::size_t>(Blocks(args_.k));
    rows_.assign(count * row_bytes, std::byte{0});
    scales_.assign(IsScaled(args_) ? count * blocks : 0, 0.0f);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t source = args_.index[static_cast<std::size_t>(range.begin) + i];
      if (source < 0 || source >= args_.a_rows) continue;
      std::memcpy(rows_.data() + i * row_bytes,
                  At(args_.A, source * BytesOf(args_.type, args_.lda)), row_bytes);
      for (std::size_t b = 0; b < blocks && IsScaled(args_); ++b) {
        scales_[i * blocks + b] =
            args_.U[source * args_.u_row + static_cast<std::int64_t>(b) * args_.u_block];
      }
    }
    product.A = rows_.data();
    product.Adesc.ld = args_.k;
    if (!IsScaled(args_)) return;
    product.U = scales_.data();
    product.Udesc = RowMajor(DataType::kFloat32, product.Adesc.rows, Blocks(args_.k));
  }

  Result<Workspace> WorkspaceOf(const WorkspaceSize& size) {
    constexpr std::size_t kAlignment = 256;
    const std::size_t bytes = size.total();
    if (bytes == 0) return Workspace{};
    if (memory_.size() < bytes + kAlignment) memory_.resize(bytes + kAlignment);
    void* begin = memory_.data();
    std::size_t room = memory_.size();
    return InitWorkspace(size, std::align(kAlignment, bytes, begin, room), bytes);
  }

  Gemm& gemm_;
  const GroupedArgs& args_;
  std::map<GemmDesc, LaunchSpec> choices_;
  std::vector<std::byte> rows_, memory_;
  std::vector<float> scales_;
};

}  // namespace

Status GroupedGemm(Gemm& gemm, const GroupedArgs& given, cudaStream_t stream) {
  GroupedArgs args = given;
  CULET_RETURN_IF_ERROR(CheckTypes(args));
  CULET_RETURN_IF_ERROR(CheckSizes(args));
  if (args.lda == 0) args.lda = args.k;
  if (args.ldd == 0) args.ldd = args.n;
  if (args.u_row == 0 && args.u_block == 0) args.u_row = Blocks(args.k), args.u_block = 1;
  CULET_RETURN_IF_ERROR(CheckStrides(args));
  if (args.rows == 0) return {};
  CULET_RETURN_IF_ERROR(CheckMemory(args));
  const TraceRange range(
      [&] { return fmt::format("grouped {}x{}x{}x{}", args.groups, args.rows, args.n, args.k); });
  if (gemm.device().arch == 0) return HostGroups(gemm, args).Run();
  const int ordinal = gemm.device().ordinal;
  if (!IsStreamOf(stream, ordinal)) return StreamOfAnother(ordinal);
  const DeviceScope scope(ordinal);
  return GroupedOnAccelerator(gemm.device(), args, stream);
}

}  // namespace culet
