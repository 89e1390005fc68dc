#include "model/find_architecture.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace culet {

using nlohmann::json;

Result<std::size_t> FindArchitecture(const json& config, const std::string& origin,
                                     std::span<const ArchitectureName> known) {
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
  std::vector<std::string> names;
  for (std::size_t i = 0; i < known.size(); ++i) {
    for (const std::string& name : named) {
      if (name == known[i].name) return i;
    }
    if (named.empty() && model_type == known[i].model_type) return i;
    names.emplace_back(known[i].name);
  }
  const std::string listed = fmt::format("known are {}", fmt::join(names, ", "));
  if (named.empty() && model_type.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: architectures and model_type are missing; {}", origin, listed));
  }
  return Status(
      StatusCode::kUnsupported,
      fmt::format("{}: the architecture {} is unknown; {}", origin,
                  named.empty() ? model_type : fmt::to_string(fmt::join(named, ", ")), listed));
}

}  // namespace culet
