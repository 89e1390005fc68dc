// Which of the known architectures a config.json names.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "culet/status.h"

namespace culet {

struct ArchitectureName {
  const char* name;        ///< as in the config's "architectures"
  const char* model_type;  ///< as in the config's "model_type"
};

/// The index in `known`. "architectures" may name the model with its head, or its base model
/// ("Qwen3Model"), as files of embedding models do.
/// Errors: INVALID_ARGUMENT when the config has neither "architectures" nor "model_type", or when
/// the two name different architectures; UNSUPPORTED for an unknown one; these list the known ones.
Result<std::size_t> FindArchitecture(const nlohmann::json& config, const std::string& origin,
                                     std::span<const ArchitectureName> known);

}  // namespace culet
