#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "culet/model.h"
#include "model/architectures.h"
#include "model/config_file.h"
#include "model/config_reader.h"
#include "model/find_architecture.h"
#include "base/json_text.h"
#include "model/text_kind.h"

namespace culet {
namespace {

using nlohmann::json;

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
  const json config = ParseJson(text);
  if (!config.is_object()) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{} is not a JSON object; it must be a model's config.json{}", origin,
                              ReplacedBy(text)));
  }
  std::vector<ArchitectureName> known;
  for (const Architecture& a : Architectures()) known.push_back({a.name, a.model_type});
  const Result<std::size_t> found = FindArchitecture(config, origin, known);
  if (!found.ok()) return found.status();
  const Architecture& architecture = Architectures()[*found];

  ConfigReader reader(config, origin);
  ModelShapes shapes;
  shapes.architecture = architecture.name;
  shapes.model_type = architecture.model_type;
  shapes.format = FormatOf(config);
  shapes.products = architecture.products(reader);
  CULET_RETURN_IF_ERROR(reader.status());
  return shapes;
}

Result<ModelShapes> ReadModelShapes(const std::string& path) {
  const auto file = ReadConfigFile(path);
  if (!file.ok()) return file.status();
  return ParseModelShapes(file->text, file->path);
}

}  // namespace culet
