#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "culet/model.h"
#include "model/architectures.h"
#include "model/config_reader.h"
#include "model/text_file.h"

namespace culet {
namespace {

using nlohmann::json;

// Real ones hold a few KB; DeepSeek's is 2 KB.
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

// The architecture that the config names; model_type decides only where "architectures" is absent.
Result<const Architecture*> FindArchitecture(const json& config, const std::string& origin) {
  std::vector<std::string> named;
  if (const auto it = config.find("architectures"); it != config.end() && it->is_array()) {
    for (const json& name : *it) {
      if (name.is_string()) named.push_back(name.get<std::string>());
    }
  }
  std::string model_type;
  if (const auto it = config.find("model_type"); it != config.end() && it->is_string()) {
    model_type = it->get<std::string>();
  }
  for (const Architecture& known : Architectures()) {
    for (const std::string& name : named) {
      if (name == known.name) return &known;
    }
    if (named.empty() && model_type == known.model_type) return &known;
  }
  const std::string known = fmt::format("known are {}", fmt::join(KnownArchitectures(), ", "));
  if (named.empty() && model_type.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: architectures and model_type are missing; {}", origin, known));
  }
  return Status(
      StatusCode::kUnsupported,
      fmt::format("{}: the architecture {} is unknown; {}", origin,
                  named.empty() ? model_type : fmt::to_string(fmt::join(named, ", ")), known));
}

// How the checkpoint stores its weights.
std::optional<Format> FormatOf(const json& config) {
  const ConfigReader reader(config, "");
  const auto quantization = config.find("quantization_config");
  if (quantization != config.end() && !quantization->is_null()) {
    const bool block_fp8 = quantization->is_object() &&
                           quantization->value("quant_method", json()) == "fp8" &&
                           quantization->value("weight_block_size", json()) == json{128, 128};
    return block_fp8 ? std::optional(Format::kFp8Block) : std::nullopt;
  }
  const std::string type = reader.TextOrEmpty({"dtype", "torch_dtype"});
  if (type == "bfloat16") return Format::kBf16;
  if (type == "float16") return Format::kF16;
  if (type == "float32") return Format::kF32;
  return std::nullopt;
}

}  // namespace

int RowsOf(const ModelProduct& product, int tokens) noexcept {
  if (product.experts <= 0) return tokens;
  const std::int64_t routed = std::int64_t{tokens} * product.active_experts;
  return static_cast<int>((routed + product.experts - 1) / product.experts);
}

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& known : Architectures()) names.emplace_back(known.name);
  return names;
}

Result<ModelShapes> ParseModelShapes(std::string_view text, const std::string& origin) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{} is not a JSON object; it must be a model's config.json", origin));
  }
  const Result<const Architecture*> architecture = FindArchitecture(config, origin);
  if (!architecture.ok()) return architecture.status();

  ConfigReader reader(config, origin);
  ModelShapes shapes;
  shapes.architecture = (*architecture)->name;
  shapes.model_type = (*architecture)->model_type;
  shapes.format = FormatOf(config);
  shapes.products = (*architecture)->products(reader);
  CULET_RETURN_IF_ERROR(reader.status());
  return shapes;
}

Result<ModelShapes> ReadModelShapes(const std::string& path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::string file = folder ? (std::filesystem::path(path) / "config.json").string() : path;
  const Result<std::string> text = ReadTextFile(file, kMaxConfigBytes);
  if (!text.ok()) return text.status();
  return ParseModelShapes(*text, file);
}

}  // namespace culet
