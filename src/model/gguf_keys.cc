#include "model/gguf_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "culet/printable.h"
#include "model/shown.h"

namespace culet {

using nlohmann::json;

std::string ShownGgufValue(const json& value) {
  return Printable(value.dump(-1, ' ', true, json::error_handler_t::replace), kShownText);
}

double ShortestDecimal(double stored) {
  return std::stod(fmt::format("{}", static_cast<float>(stored)));
}

const json* GgufKeys::Find(const std::string& key) const {
  const auto it = file_.metadata().find(prefix_ + key);
  return it == file_.metadata().end() ? nullptr : &*it;
}

void GgufKeys::Fail(StatusCode code, const std::string& sentence) {
  if (status_.ok()) status_ = Status(code, fmt::format("{}: {}", file_.path(), sentence));
}

std::int64_t GgufKeys::Whole(const std::string& key, const json& given, int least) {
  const json* value = &given;
  if (value->is_array() && !value->empty() &&
      std::ranges::all_of(*value, [&](const json& one) { return one == value->front(); })) {
    value = &value->front();
  }
  const bool fits = value->is_number_integer() && *value >= least &&
                    *value <= std::numeric_limits<std::int32_t>::max();
  if (fits) return value->get<std::int64_t>();
  Fail(value->is_array() ? StatusCode::kUnsupported : StatusCode::kInvalidArgument,
       fmt::format("metadata {}{} is {}; it must be a whole number {}, the same in all layers",
                   prefix_, key, ShownGgufValue(*value), least > 0 ? "above 0" : "of at least 0"));
  return least;
}

std::int64_t GgufKeys::Count(const std::string& key) {
  const json* value = Find(key);
  if (value != nullptr) return Whole(key, *value, 1);
  Fail(StatusCode::kInvalidArgument, fmt::format("metadata {}{} is missing", prefix_, key));
  return 1;
}

std::int64_t GgufKeys::CountOrZero(const std::string& key) {
  const json* value = Find(key);
  return value == nullptr ? 0 : Whole(key, *value, 0);
}

double GgufKeys::Number(const std::string& key, std::optional<double> fallback) {
  const json* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_number() && std::isfinite(value->get<double>()) &&
      value->get<double>() > 0) {
    return value->get<double>();
  }
  Fail(StatusCode::kInvalidArgument,
       fmt::format("metadata {}{} is {}; it must be a number above 0", prefix_, key,
                   value == nullptr ? "missing" : ShownGgufValue(*value)));
  return 1;
}

bool GgufKeys::Flag(const std::string& key) {
  const json* value = Find(key);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  Fail(StatusCode::kInvalidArgument, fmt::format("metadata {}{} is {}; it must be true or false",
                                                 prefix_, key, ShownGgufValue(*value)));
  return false;
}

std::vector<bool> GgufKeys::Flags(const std::string& key, std::int64_t layers) {
  const json* value = Find(key);
  if (value == nullptr) return {};
  const auto is_flag = [](const json& one) { return one.is_boolean() || one.is_number_integer(); };
  if (!value->is_array() || static_cast<std::int64_t>(value->size()) != layers ||
      !std::ranges::all_of(*value, is_flag)) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("metadata {}{} is {}; it must be a list of true or false for each of {} "
                     "layers",
                     prefix_, key, ShownGgufValue(*value), layers));
    return {};
  }
  std::vector<bool> flags;
  for (const json& one : *value) flags.push_back(one.is_boolean() ? one.get<bool>() : one != 0);
  return flags;
}

std::string GgufKeys::Text(const std::string& key) {
  const json* value = Find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  Fail(StatusCode::kInvalidArgument,
       fmt::format("metadata {}{} is {}; it must be a text", prefix_, key, ShownGgufValue(*value)));
  return {};
}

}  // namespace culet
