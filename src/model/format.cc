#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "culet/model.h"

namespace culet {
namespace {

constexpr int kScaleGroup = 128;

struct FormatTraits {
  Format format;
  const char* name;
  DataType type_a, type_b, type_d;
};
constexpr FormatTraits kFormats[] = {
    {Format::kF32, "f32", DataType::kFloat32, DataType::kFloat32, DataType::kFloat32},
    {Format::kF16, "f16", DataType::kFloat16, DataType::kFloat16, DataType::kFloat16},
    {Format::kBf16, "bf16", DataType::kBfloat16, DataType::kBfloat16, DataType::kBfloat16},
    {Format::kF32Bf16, "f32-bf16", DataType::kFloat32, DataType::kBfloat16, DataType::kFloat32},
    {Format::kF32F16, "f32-f16", DataType::kFloat32, DataType::kFloat16, DataType::kFloat32},
    {Format::kFp8Block, "fp8-block", DataType::kFloat8_e4m3, DataType::kFloat8_e4m3,
     DataType::kBfloat16},
};

const FormatTraits* Find(Format format) noexcept {
  for (const FormatTraits& traits : kFormats) {
    if (traits.format == format) return &traits;
  }
  return nullptr;
}

constexpr int Groups(int size) noexcept { return size / kScaleGroup + (size % kScaleGroup != 0); }

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
  if (format == Format::kFp8Block) {
    args.operation.quant_a = {QuantType::kK, kScaleGroup};
    args.operation.quant_b = {QuantType::kB, kScaleGroup};
    args.Udesc = RowMajor(DataType::kFloat32, m, Groups(k));
    args.Vdesc = ColMajor(DataType::kFloat32, Groups(k), Groups(n));
  }
  return Describe(args, arch);
}

}  // namespace culet
