#include "model/find_architecture.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "culet/printable.h"

namespace culet {

using nlohmann::json;

namespace {

// "Qwen3Model" of "Qwen3ForCausalLM".
std::string BaseModel(std::string_view name) {
  constexpr std::string_view kHead = "ForCausalLM";
  if (!name.ends_with(kHead)) return {};
  name.remove_suffix(kHead.size());
  return std::string(name) + "Model";
}

}  // namespace

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
  // No index: `known.size()`.
  const auto first = [&](const auto& matches) {
    return static_cast<std::size_t>(std::ranges::find_if(known, matches) - known.begin());
  };
  const auto named_so = [&](const ArchitectureName& each) {
    return std::ranges::any_of(named, [&](const std::string& name) {
      return name == each.name || name == BaseModel(each.name);
    });
  };
  const std::size_t by_name = first(named_so);
  const std::size_t by_type =
      first([&](const ArchitectureName& each) { return model_type == each.model_type; });
  const bool typed = by_type < known.size();
  if (typed && (named.empty() || named_so(known[by_type]))) return by_type;
  if (model_type.empty() && by_name < known.size()) return by_name;

  std::vector<std::string> names;
  for (const ArchitectureName& each : known) names.emplace_back(each.name);
  const std::string listed = fmt::format("known are {}", fmt::join(names, ", "));
  if (named.empty() && model_type.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: architectures and model_type are missing; {}", origin, listed));
  }
  constexpr std::size_t kShown = 100;
  const std::string shown = Printable(fmt::to_string(fmt::join(named, ", ")), kShown);
  const std::string type = Printable(model_type, kShown);
  if (by_name < known.size()) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("{}: architectures is {}, but model_type is {}; the two must name one "
                    "architecture ({} has {})",
                    origin, shown, type, known[by_name].name, known[by_name].model_type));
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("{}: the architecture {} is unknown; {}", origin,
                            named.empty() ? type : shown, listed));
}

}  // namespace culet
