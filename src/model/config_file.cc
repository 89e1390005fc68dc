#include "model/config_file.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "model/config_reader.h"
#include "base/json_text.h"
#include "model/text_file.h"
#include "model/text_kind.h"

namespace culet {
namespace {

namespace fs = std::filesystem;

// Real ones hold a few KB; DeepSeek's is 2 KB.
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

bool HasGgufName(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".gguf";
}

// By its first bytes; of a regular file, as others may block.
bool IsGguf(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return HasGgufName(path) || std::memcmp(magic, "GGUF", sizeof(magic)) == 0;
}

Status GgufIsNotRead(const fs::path& path) {
  return Status(StatusCode::kUnsupported,
                fmt::format("{} is a GGUF file, which culet does not read yet; give the folder of "
                            "the Hugging Face checkpoint that it was made from, with config.json "
                            "and safetensors",
                            path.string()));
}

}  // namespace

Result<ConfigFile> ReadConfigFile(const std::string& path) {
  std::error_code error;
  fs::path file = path;
  if (fs::is_directory(path, error)) {
    file /= "config.json";
    if (!fs::exists(file, error)) {
      for (const std::string& name : NamesIn(path)) {
        if (HasGgufName(name)) return GgufIsNotRead(fs::path(path) / name);
      }
    }
  } else if (IsGguf(file)) {
    return GgufIsNotRead(file);
  }
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
