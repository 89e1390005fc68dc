// config.json's quantization_config: how the weights of linear layers are stored.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "culet/decoder.h"
#include "model/config_reader.h"

namespace culet {

/// What quantization_config, any JSON value, says. Errors go to `reader`: UNSUPPORTED for a method,
/// a format or a number of bits that is not known, with the key, its value and what is known;
/// INVALID_ARGUMENT for an impossible value. Keys without effect are added to `warnings`.
/// `origin` names the config in messages.
WeightCoding ReadWeightCoding(const nlohmann::json& quantization, ConfigReader& reader,
                              const std::string& origin, std::vector<std::string>& warnings);

/// Whether one of the `patterns` names the module: the whole name, its first or its last parts, or
/// "re:" and a regular expression (ECMAScript's) that its beginning matches.
bool ListsModule(std::span<const std::string> patterns, std::string_view module);

/// Whether ListsModule takes the pattern: any name, and regular expressions that are short and
/// fast.
bool IsModulePattern(const std::string& pattern);

}  // namespace culet
