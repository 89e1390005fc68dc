// The files beside a checkpoint's weights: config.json and generation_config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "culet/status.h"

namespace culet {

/// A file's text and its path, for messages.
struct ConfigFile {
  std::string path, text;
};

/// Reads `path`, a config.json or a folder that holds one. Of a GGUF file, or a folder with one and
/// no config.json, the text is what a config.json would say, the path the file's.
/// Errors: as ReadTextFile, GgufPathOf, GgufFile::Open and GgufConfigText.
Result<ConfigFile> ReadConfigFile(const std::string& path);

/// The end tokens of a folder's generation_config.json, which override those of config.json;
/// nothing if there is no such file or no end token in it. Errors: as ReadTextFile; DATA_LOSS for
/// text that is no JSON object; INVALID_ARGUMENT for an eos_token_id that is neither a token nor a
/// list of tokens.
Result<std::optional<std::vector<int>>> ReadGenerationEndTokens(const std::string& folder);

}  // namespace culet
