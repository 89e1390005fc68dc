#include "gemm/scratch_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>

#include "culet/packing.h"
#include "gemm/extent.h"

namespace culet {
namespace {

constexpr std::size_t kBlockAlignment = 256;  // what Runtime::Allocate gives
constexpr std::size_t kInputGuardBytes = 512;
// A kernel that writes a whole tile too far passes many lines; two are what small memory allows.
constexpr std::size_t kOutputGuardLines = 2;
constexpr std::size_t kLeastOutputGuardBytes = 1024;
constexpr std::size_t kMostOutputGuardBytes = 64 << 10;

constexpr std::size_t RoundUp(std::size_t bytes, std::size_t step) noexcept {
  return (bytes + step - 1) / step * step;
}

// The smallest pitch of exactly this class that leaves the gap; class 16 takes larger ones too.
constexpr std::size_t PitchOf(std::size_t line_bytes, std::size_t gap_bytes,
                              std::size_t alignment) noexcept {
  const std::size_t pitch = RoundUp(line_bytes + gap_bytes, alignment);
  return alignment < 16 && pitch / alignment % 2 == 0 ? pitch + alignment : pitch;
}

struct Request {
  std::string_view name;
  std::string_view alignment_field;  // of GemmDesc
  MatrixLayout layout;               // without ld
  std::size_t alignment;
  bool output = false;
  std::size_t pitch_bytes = 0;  // 0: as the alignment wants it
};

class Arranger {
 public:
  Arranger(std::size_t gap_bytes, bool as_allocated)
      : gap_bytes_(gap_bytes), as_allocated_(as_allocated) {}

  Status Place(const Request& request, Region& region) {
    if (request.layout.type == DataType::kNull) return {};
    const std::size_t size = SizeOf(request.layout.type);
    if (size == 0 || !std::has_single_bit(request.alignment) || request.alignment < size ||
        request.alignment > 16) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("desc.{} is {} for {}; use a power of two from {} to 16",
                                request.alignment_field, request.alignment,
                                ToString(request.layout.type), std::max<std::size_t>(size, 1)));
    }
    region.layout = request.layout;
    const auto lines = static_cast<std::size_t>(OuterOf(request.layout));
    region.lines = lines * static_cast<std::size_t>(request.layout.num);
    region.line_bytes =
        static_cast<std::size_t>(BytesOf(request.layout.type, InnerOf(request.layout)));
    region.pitch_bytes = request.pitch_bytes > 0
                             ? request.pitch_bytes
                             : PitchOf(region.line_bytes, gap_bytes_, request.alignment);
    const auto bits = static_cast<std::size_t>(BitsOf(request.layout.type));
    region.layout.ld = static_cast<std::int64_t>(region.pitch_bytes * 8 / bits);
    if (request.layout.num > 1) {
      region.layout.batch_stride = static_cast<std::int64_t>(lines) * region.layout.ld;
    }

    const std::size_t guard = request.output
                                  ? std::clamp(kOutputGuardLines * region.pitch_bytes,
                                               kLeastOutputGuardBytes, kMostOutputGuardBytes)
                                  : kInputGuardBytes;
    region.begin = next_;
    // A multiple of 256 and one odd multiple of the class has exactly the class.
    region.data = region.begin + RoundUp(guard, kBlockAlignment) +
                  (request.alignment < 16 && !as_allocated_ ? request.alignment : 0);
    std::size_t data_bytes = 0;
    if (__builtin_mul_overflow(region.lines, region.pitch_bytes, &data_bytes) ||
        data_bytes > (std::size_t{1} << 60)) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("{} has {} lines of {} bytes, more than there are addresses; use a "
                                "smaller problem",
                                request.name, region.lines, region.pitch_bytes));
    }
    region.end = RoundUp(region.data + data_bytes + guard, kBlockAlignment);
    next_ = region.end;
    return {};
  }

  // Bytes without lines.
  void PlacePacked(const MatrixLayout& layout, std::size_t bytes, std::size_t alignment,
                   Region& region) {
    region.layout = layout;
    region.lines = 1;
    region.line_bytes = region.pitch_bytes = bytes;
    region.begin = next_;
    region.data = region.begin + RoundUp(kInputGuardBytes, kBlockAlignment) +
                  (alignment < 16 ? alignment : 0);
    region.end = RoundUp(region.data + bytes + kInputGuardBytes, kBlockAlignment);
    next_ = region.end;
  }

  std::size_t bytes() const noexcept { return next_; }

 private:
  std::size_t gap_bytes_;
  bool as_allocated_;
  std::size_t next_ = 0;
};

MatrixLayout Shaped(DataType type, Order order, std::int64_t rows, std::int64_t cols, int num = 1) {
  MatrixLayout layout;
  layout.num = num;
  layout.type = type;
  layout.order = order;
  layout.rows = static_cast<int>(rows);
  layout.cols = static_cast<int>(cols);
  return layout;
}

// Groups along K and along the other axis of one operand.
struct Groups {
  int k, outer;
};
Groups GroupsOf(const QuantDesc& quant, int k, int outer) noexcept {
  const ScaleGroup group = ScaleGroupOf(quant, outer, k);
  return {(k - 1) / group.k + 1, (outer - 1) / group.outer + 1};
}

}  // namespace

Result<Arrangement> Arrange(const GemmDesc& desc, std::size_t gap_bytes, bool as_allocated) {
  for (const auto& [name, extent] : {std::pair("m", desc.m),
                                     {"n", desc.n},
                                     {"k", desc.k},
                                     {"num", desc.num},
                                     {"a.num", desc.a.num},
                                     {"b.num", desc.b.num},
                                     {"c.num", desc.c.num},
                                     {"d.num", desc.d.num}}) {
    if (extent < 1) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("desc.{} is {}; it must be >= 1", name, extent));
    }
  }
  // Rows of all matrices are counted as int.
  constexpr int kMost = std::numeric_limits<int>::max();
  if (desc.num > kMost / std::max(desc.m, desc.n)) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("{} matrices of {} x {} are more than {} lines; use a smaller problem",
                    desc.num, desc.m, desc.n, kMost));
  }
  if (gap_bytes > (std::size_t{1} << 30)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("gap_bytes is {}; use at most 2^30", gap_bytes));
  }
  Arrangement result;
  Arranger arranger(gap_bytes, as_allocated);
  const auto place = [&](std::string_view name, std::string_view alignment_field,
                         const OperandDesc& operand, int rows, int cols, Region& region) {
    return arranger.Place(
        {name, alignment_field, Shaped(operand.type, operand.order, rows, cols, operand.num),
         operand.align, name == "D"},
        region);
  };
  // Scales of rows x cols groups.
  const auto scales = [&](std::string_view name, std::string_view alignment_field,
                          const OperandDesc& operand, int rows, int cols,
                          Region& region) -> Status {
    if (SizeOf(operand.scale_type) == 0) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("the scales {} have group size {} and type {}; give both", name,
                                operand.quant.group_size, ToString(operand.scale_type)));
    }
    return arranger.Place({name, alignment_field,
                           Shaped(operand.scale_type, operand.scale_order, rows, cols, operand.num),
                           operand.scale_align, name == "W"},
                          region);
  };
  // Scales and zero points of A or B.
  const auto quantisation = [&](std::string_view name, std::string_view alignment_field,
                                const OperandDesc& operand, int outer, bool of_a, Region& scale,
                                Region& zero) -> Status {
    const QuantDesc& quant = operand.quant;
    if (quant.type == QuantType::kNone) return {};
    if (HasGroupSize(quant.type) && quant.group_size < 1) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("the scales {} have group size {} and type {}; give both", name,
                                quant.group_size, ToString(operand.scale_type)));
    }
    const Groups groups = GroupsOf(quant, desc.k, outer);
    const int rows = of_a ? groups.outer : groups.k, cols = of_a ? groups.k : groups.outer;
    CULET_RETURN_IF_ERROR(scales(name, alignment_field, operand, rows, cols, scale));
    // They share ld with the scales.
    const DataType type = operand.zero_type;
    return arranger.Place(
        {"the zero points", "zero_type", LayoutOf(ZeroPoints{nullptr, type}, scale.layout),
         std::max<std::size_t>(SizeOf(type), 1), false,
         static_cast<std::size_t>(BytesOf(type, scale.layout.ld))},
        zero);
  };

  CULET_RETURN_IF_ERROR(place("A", "a.align", desc.a, desc.m, desc.k, result.a));
  CULET_RETURN_IF_ERROR(
      quantisation("U", "a.scale_align", desc.a, desc.m, true, result.u, result.zero_a));
  CULET_RETURN_IF_ERROR(place("B", "b.align", desc.b, desc.k, desc.n, result.b));
  CULET_RETURN_IF_ERROR(
      quantisation("V", "b.scale_align", desc.b, desc.n, false, result.v, result.zero_b));
  if (desc.b.pack != 0) {
    const PackFormat* const format = FindPackFormat(desc.b.pack);
    if (format == nullptr || PackedBytes(PackedLayout(result.b.layout, *format)) < 0) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("desc.b.pack is {}, which is no format of a weight of this size",
                                desc.b.pack));
    }
    const MatrixLayout packed = PackedLayout(result.b.layout, *format);
    arranger.PlacePacked(packed, static_cast<std::size_t>(PackedBytes(packed)), desc.b.align,
                         result.packed_b);
  }
  CULET_RETURN_IF_ERROR(place("C", "c.align", desc.c, desc.m, desc.n, result.c));
  const int bias_length = desc.bias_axis == Bias::Axis::kN ? desc.n : desc.m;
  CULET_RETURN_IF_ERROR(arranger.Place(
      {"the bias", "type_bias", Shaped(desc.type_bias, Order::kRowMajor, 1, bias_length),
       std::max<std::size_t>(SizeOf(desc.type_bias), 1)},
      result.bias));
  const int columns = ColumnsOfD(desc);
  CULET_RETURN_IF_ERROR(place("D", "d.align", desc.d, desc.m, columns, result.d));
  if (desc.d.quant.type != QuantType::kNone) {
    const int groups = GroupsOf(desc.d.quant, columns, desc.m).k;
    CULET_RETURN_IF_ERROR(scales("W", "d.scale_align", desc.d, desc.m, groups, result.w));
  }
  result.bytes = arranger.bytes();
  return result;
}

GemmArgs ArgsOver(const Arrangement& arrangement, const GemmDesc& desc, float alpha, float beta,
                  std::byte* base) {
  const auto at = [base](const Region& region) {
    return region.present() ? base + region.data : nullptr;
  };
  GemmArgs args;
  args.operation.epilogue = desc.epilogue;
  args.operation.gate_order = desc.gate_order;
  args.operation.quant_a = desc.a.quant;
  args.operation.quant_b = desc.b.quant;
  args.operation.batch_dim = desc.batch_dim;
  args.operation.bias = {at(arrangement.bias), desc.type_bias, desc.bias_axis};
  args.operation.pdl = desc.pdl;
  args.operation.sm_budget = desc.sm_budget;
  args.operation.accumulate = desc.accumulate;
  args.operation.determinism = desc.determinism;
  args.operation.zero_a = {at(arrangement.zero_a), desc.a.zero_type};
  args.operation.zero_b = {at(arrangement.zero_b), desc.b.zero_type};
  args.operation.quant_d = {desc.d.quant, at(arrangement.w), arrangement.w.layout};
  args.alpha = alpha;
  args.beta = arrangement.c.present() ? beta : 0.0f;
  args.A = at(arrangement.a);
  args.Adesc = arrangement.a.layout;
  args.U = at(arrangement.u);
  args.Udesc = arrangement.u.layout;
  const Region& b = arrangement.packed_b.present() ? arrangement.packed_b : arrangement.b;
  args.B = at(b);
  args.Bdesc = b.layout;
  args.V = at(arrangement.v);
  args.Vdesc = arrangement.v.layout;
  args.C = at(arrangement.c);
  args.Cdesc = arrangement.c.layout;
  args.D = at(arrangement.d);
  args.Ddesc = arrangement.d.layout;
  return args;
}

}  // namespace culet
