#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "culet/model.h"

namespace culet {
namespace {

constexpr int kScaleGroup = 128, kShortGroup = 32;

struct FormatTraits {
  Format format;
  const char* name;
  DataType type_a, type_b, type_d;
  QuantDesc quant_a = {}, quant_b = {};
  DataType scale_type = DataType::kFloat32, zero_type = DataType::kNull;
};
constexpr FormatTraits kFormats[] = {
    {Format::kF32, "f32", DataType::kFloat32, DataType::kFloat32, DataType::kFloat32},
    {Format::kF16, "f16", DataType::kFloat16, DataType::kFloat16, DataType::kFloat16},
    {Format::kBf16, "bf16", DataType::kBfloat16, DataType::kBfloat16, DataType::kBfloat16},
    {Format::kF32Bf16, "f32-bf16", DataType::kFloat32, DataType::kBfloat16, DataType::kFloat32},
    {Format::kF32F16, "f32-f16", DataType::kFloat32, DataType::kFloat16, DataType::kFloat32},
    {Format::kFp8Block,
     "fp8-block",
     DataType::kFloat8_e4m3,
     DataType::kFloat8_e4m3,
     DataType::kBfloat16,
     {QuantType::kK, kScaleGroup},
     {QuantType::kB, kScaleGroup}},
    {Format::kFp8Row,
     "fp8-row",
     DataType::kFloat8_e4m3,
     DataType::kFloat8_e4m3,
     DataType::kBfloat16,
     {QuantType::kRow},
     {QuantType::kRow}},
    {Format::kFp8Tensor,
     "fp8-tensor",
     DataType::kFloat8_e4m3,
     DataType::kFloat8_e4m3,
     DataType::kBfloat16,
     {QuantType::kTensor},
     {QuantType::kTensor}},
    {Format::kU4,
     "u4",
     DataType::kBfloat16,
     DataType::kUint4,
     DataType::kBfloat16,
     {},
     {QuantType::kK, kScaleGroup},
     DataType::kFloat16,
     DataType::kBfloat16},
    {Format::kMxfp4,
     "mxfp4",
     DataType::kBfloat16,
     DataType::kFloat4_e2m1,
     DataType::kBfloat16,
     {},
     {QuantType::kK, kShortGroup},
     DataType::kFloat8_ue8m0},
    {Format::kInt8,
     "int8",
     DataType::kBfloat16,
     DataType::kInt8,
     DataType::kBfloat16,
     {},
     {QuantType::kK, kShortGroup},
     DataType::kFloat16},
    {Format::kW8,
     "w8",
     DataType::kBfloat16,
     DataType::kFloat8_e4m3,
     DataType::kBfloat16,
     {},
     {QuantType::kRow}},
};

const FormatTraits* Find(Format format) noexcept {
  for (const FormatTraits& traits : kFormats) {
    if (traits.format == format) return &traits;
  }
  return nullptr;
}

constexpr int Groups(int size, int group) noexcept { return size / group + (size % group != 0); }

}  // namespace

const char* ToString(Format format) noexcept {
  const FormatTraits* traits = Find(format);
  return traits != nullptr ? traits->name : "invalid";
}

Result<Format> ParseFormat(std::string_view text) {
  std::vector<std::string_view> names;
  for (const FormatTraits& traits : kFormats) {
    if (text == traits.name) return traits.format;
    names.emplace_back(traits.name);
  }
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("the format '{}' is unknown; known are {}", text, fmt::join(names, ", ")));
}

Result<GemmDesc> MakeDesc(Format format, int m, int n, int k, int arch, DataType output) {
  const FormatTraits* traits = Find(format);
  if (traits == nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("format is {}, not a Format", static_cast<int>(format)));
  }
  for (const auto& [name, size] : {std::pair("m", m), std::pair("n", n), std::pair("k", k)}) {
    if (size < 1) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} is {}; it must be at least 1", name, size));
    }
  }
  GemmArgs args;
  args.Adesc = RowMajor(traits->type_a, m, k);
  args.Bdesc = ColMajor(traits->type_b, k, n);
  args.Ddesc = RowMajor(output != DataType::kNull ? output : traits->type_d, m, n);
  if (traits->quant_a.type != QuantType::kNone) {
    args.operation.quant_a = traits->quant_a;
    const ScaleGroup a = ScaleGroupOf(traits->quant_a, m, k);
    args.Udesc = RowMajor(DataType::kFloat32, Groups(m, a.outer), Groups(k, a.k));
  }
  if (traits->quant_b.type != QuantType::kNone) {
    args.operation.quant_b = traits->quant_b;
    const ScaleGroup b = ScaleGroupOf(traits->quant_b, n, k);
    args.Vdesc = ColMajor(traits->scale_type, Groups(k, b.k), Groups(n, b.outer));
  }
  auto desc = Describe(args, arch);
  if (desc) desc->b.zero_type = traits->zero_type;  // which needs no address here
  return desc;
}

}  // namespace culet
