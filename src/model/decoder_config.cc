// DecoderConfig from config.json: which architecture it is, and models of several parts.
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "culet/decoder.h"
#include "culet/printable.h"
#include "model/config_file.h"
#include "model/config_keys.h"
#include "model/decoder_architecture.h"
#include "model/decoder_reader.h"
#include "model/find_architecture.h"
#include "model/gguf_config.h"
#include "model/gguf_file.h"
#include "model/quantization_config.h"
#include "model/shown.h"
#include "model/text_kind.h"

namespace culet {
namespace {

using nlohmann::json;

const DecoderArchitecture* ArchitectureOfType(std::string_view model_type) {
  for (const DecoderArchitecture* each : DecoderArchitectures()) {
    if (model_type == each->model_type) return each;
  }
  return nullptr;
}

Result<DecoderConfig> ParseContainer(const json& root, const std::string& origin,
                                     const DecoderContainer& container, bool quantised) {
  const auto it = root.find("text_config");
  if (it == root.end() || !it->is_object()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: text_config is no object; a {} has the config of its text model "
                              "there",
                              origin, container.name));
  }
  json text = *it;
  const std::string type = text.contains("model_type") && text["model_type"].is_string()
                               ? text["model_type"].get<std::string>()
                               : std::string();
  const DecoderArchitecture* architecture = nullptr;
  for (const char* known : container.text_types) {
    if (type == known) architecture = ArchitectureOfType(known);
  }
  if (architecture == nullptr) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: text_config has model_type {}; known in a {} are {}", origin,
                              Printable(type, kShownText), container.name,
                              fmt::join(container.text_types, ", ")));
  }
  // What is said of the whole file counts for the text model, too.
  for (const char* key :
       {"quantization_config", "dtype", "torch_dtype", "tie_word_embeddings", "eos_token_id"}) {
    if (root.contains(key) && !root.at(key).is_null()) text[key] = root.at(key);
  }
  text.erase("architectures");
  const std::string where = origin + ": text_config";
  auto config = DecoderReader(text, where, *architecture).Read(quantised);
  if (!config) return config;
  config->container = container.name;
  for (std::string& unused : UnusedKeysOfContainer(root, origin)) {
    config->warnings.push_back(std::move(unused));
  }
  return config;
}

}  // namespace

std::vector<std::string> KnownDecoders() {
  std::vector<std::string> names;
  for (const DecoderArchitecture* known : DecoderArchitectures()) names.emplace_back(known->name);
  return names;
}

Result<DecoderConfig> ParseDecoderConfig(std::string_view text, const std::string& origin) {
  const json root = ParseJson(text);
  if (!root.is_object()) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{} is not a JSON object; it must be a model's config.json{}", origin,
                              ReplacedBy(text)));
  }
  return ReadDecoder(root, origin);
}

// The names of text models, then those of containers.
std::vector<ArchitectureName> DecoderNamesOfAll() {
  std::vector<ArchitectureName> names;
  for (const DecoderArchitecture* a : DecoderArchitectures()) {
    names.push_back({a->name, a->model_type});
  }
  for (const DecoderContainer& c : DecoderContainers()) names.push_back({c.name, c.model_type});
  return names;
}

Result<DecoderConfig> ReadDecoder(const json& root, const std::string& origin, bool quantised) {
  const auto found = FindArchitecture(root, origin, DecoderNamesOfAll());
  if (!found.ok()) return found.status();
  const auto architectures = DecoderArchitectures();
  if (*found < architectures.size()) {
    return DecoderReader(root, origin, *architectures[*found]).Read(quantised);
  }
  return ParseContainer(root, origin, DecoderContainers()[*found - architectures.size()],
                        quantised);
}

Result<DecoderConfig> ReadDecoderConfig(const std::string& path) {
  const auto file = ReadConfigFile(path);
  if (!file.ok()) return file.status();
  auto config = ParseDecoderConfig(file->text, file->path);
  if (!config.ok()) return config;
  if (config->coding.form == WeightCoding::Form::kGguf) {
    const auto gguf = GgufFile::Open(file->path);
    if (!gguf) return gguf.status();
    FinishGgufConfig(*gguf, *config);
  }
  if (file->path == path) return config;
  auto end_tokens = ReadGenerationEndTokens(path);
  if (!end_tokens.ok()) return end_tokens.status();
  if (end_tokens->has_value()) config->eos_ids = *std::move(*end_tokens);
  return config;
}

}  // namespace culet
