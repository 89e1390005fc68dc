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

/// The index in `known`; model_type decides only where "architectures" is absent.
/// Errors: INVALID_ARGUMENT when the config has neither, UNSUPPORTED for an unknown one; both list
/// the known ones.
Result<std::size_t> FindArchitecture(const nlohmann::json& config, const std::string& origin,
                                     std::span<const ArchitectureName> known);

}  // namespace culet
