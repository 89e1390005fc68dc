#include "model/config_file.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "model/config_reader.h"
#include "model/gguf_config.h"
#include "model/gguf_file.h"
#include "model/text_file.h"
#include "model/text_kind.h"

namespace culet {
namespace {

namespace fs = std::filesystem;

// Real ones hold a few KB; DeepSeek's is 2 KB.
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

}  // namespace

Result<ConfigFile> ReadConfigFile(const std::string& path) {
  const auto gguf = GgufPathOf(path);
  if (!gguf) return gguf.status();
  if (!gguf->empty()) {
    const auto opened = GgufFile::Open(*gguf);
    if (!opened) return opened.status();
    auto config = GgufConfigText(*opened);
    if (!config) return config.status();
    return ConfigFile{*gguf, *std::move(config)};
  }
  std::error_code error;
  fs::path file = path;
  if (fs::is_directory(path, error)) file /= "config.json";
  auto text = ReadTextFile(file.string(), kMaxConfigBytes);
  if (!text) return text.status();
  return ConfigFile{file.string(), *std::move(text)};
}

Result<std::optional<std::vector<int>>> ReadGenerationEndTokens(const std::string& folder) {
  const std::string file = (fs::path(folder) / "generation_config.json").string();
  const auto text = ReadTextFile(file, kMaxConfigBytes);
  if (!text) {
    if (text.status().code() == StatusCode::kNotFound) return std::optional<std::vector<int>>();
    return text.status();
  }
  const nlohmann::json root = ParseJson(*text);
  if (!root.is_object()) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{} is not a JSON object{}", file, ReplacedBy(*text)));
  }
  ConfigReader reader(root, file);
  std::optional<std::vector<int>> tokens;
  if (reader.Has({"eos_token_id"})) tokens = reader.IntOrInts({"eos_token_id"});
  CULET_RETURN_IF_ERROR(reader.status());
  return tokens;
}

}  // namespace culet
