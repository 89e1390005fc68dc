#include "model/config_reader.h"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "culet/printable.h"

namespace culet {
namespace {

using nlohmann::json;

// A value as a message shows it: short, whatever the file holds.
std::string ShownValue(const json& value) {
  constexpr std::size_t kMostBytes = 40;
  return Printable(value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace),
                   kMostBytes);
}

}  // namespace

ConfigReader::ConfigReader(const json& root, std::string origin)
    : root_(root), origin_(std::move(origin)) {}

bool ConfigReader::Require(bool condition, const std::string& sentence) {
  if (!condition && status_.ok()) {
    status_ = Status(StatusCode::kInvalidArgument, origin_ + ": " + sentence);
  }
  return condition;
}

const json* ConfigReader::Find(Keys keys, const char** found) {
  const json* value = nullptr;
  for (const char* key : keys) {
    const auto it = root_.find(key);
    if (it == root_.end() || it->is_null()) continue;
    if (value == nullptr) {
      value = &*it;
      *found = key;
    } else {
      Require(*value == *it, fmt::format("{} is {} but {} is {}; the two are spellings of one key",
                                         *found, ShownValue(*value), key, ShownValue(*it)));
    }
  }
  return value;
}

bool ConfigReader::Has(Keys keys) const {
  for (const char* key : keys) {
    const auto it = root_.find(key);
    if (it != root_.end() && !it->is_null()) return true;
  }
  return false;
}

int ConfigReader::Checked(const json& value, const char* key, int minimum) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  // A value above int64 is cast to a negative one, below every minimum.
  const bool fits = value.is_number_integer() && value.get<std::int64_t>() >= minimum &&
                    value.get<std::int64_t>() <= kMost;
  if (!Require(fits, fmt::format("{} is {}; it must be an integer from {} to {}", key,
                                 ShownValue(value), minimum, kMost))) {
    return minimum;
  }
  return value.get<int>();
}

int ConfigReader::Int(Keys keys, int minimum) {
  const char* found = *keys.begin();
  const json* value = Find(keys, &found);
  if (!Require(value != nullptr, fmt::format("{} is missing", *keys.begin()))) return minimum;
  return Checked(*value, found, minimum);
}

int ConfigReader::IntOr(Keys keys, int fallback, int minimum) {
  return Has(keys) ? Int(keys, minimum) : fallback;
}

double ConfigReader::NumberOr(Keys keys, double fallback) {
  const char* found = *keys.begin();
  const json* value = Find(keys, &found);
  if (value == nullptr) return fallback;
  const bool fits = value->is_number() && std::isfinite(value->get<double>());
  Require(fits, fmt::format("{} is {}; it must be a finite number", found, ShownValue(*value)));
  return fits ? value->get<double>() : fallback;
}

double ConfigReader::PositiveNumber(Keys keys) {
  Require(Has(keys), fmt::format("{} is missing", *keys.begin()));
  const double value = NumberOr(keys, 1);
  Require(value > 0, fmt::format("{} is {}; it must be above 0", *keys.begin(), value));
  return value;
}

bool ConfigReader::FlagOr(Keys keys, bool fallback) {
  const char* found = *keys.begin();
  const json* value = Find(keys, &found);
  if (value == nullptr) return fallback;
  Require(value->is_boolean(),
          fmt::format("{} is {}; it must be true or false", found, ShownValue(*value)));
  return value->is_boolean() ? value->get<bool>() : fallback;
}

bool ConfigReader::FlagOrNumber(Keys keys, bool fallback) {
  const char* found = *keys.begin();
  const json* value = Find(keys, &found);
  if (value == nullptr || !value->is_number()) return FlagOr(keys, fallback);
  const double number = value->get<double>();
  Require(number >= 0, fmt::format("{} is {}; it must be true, false or a number of 0 or more",
                                   found, ShownValue(*value)));
  return number != 0;
}

bool ConfigReader::Supported(bool condition, const std::string& sentence) {
  if (!condition && status_.ok()) {
    status_ = Status(StatusCode::kUnsupported, origin_ + ": " + sentence);
  }
  return condition;
}

void ConfigReader::Adopt(const Status& status) {
  if (status_.ok()) status_ = status;
}

std::vector<int> ConfigReader::Ints(Keys keys) {
  std::vector<int> values;
  const char* found = *keys.begin();
  const json* list = Find(keys, &found);
  if (list == nullptr) return values;
  if (!Require(list->is_array(),
               fmt::format("{} is {}; it must be a list of integers", found, ShownValue(*list)))) {
    return values;
  }
  for (const json& value : *list) values.push_back(Checked(value, found, 0));
  return values;
}

std::vector<double> ConfigReader::Numbers(Keys keys) {
  std::vector<double> values;
  const char* found = *keys.begin();
  const json* list = Find(keys, &found);
  if (list == nullptr) return values;
  bool numbers = list->is_array();
  for (std::size_t i = 0; numbers && i < list->size(); ++i) {
    const json& value = (*list)[i];
    numbers = value.is_number() && std::isfinite(value.get<double>());
    if (numbers) values.push_back(value.get<double>());
  }
  Require(numbers,
          fmt::format("{} is {}; it must be a list of finite numbers", found, ShownValue(*list)));
  return values;
}

std::vector<int> ConfigReader::IntOrInts(Keys keys) {
  const char* found = *keys.begin();
  const json* value = Find(keys, &found);
  return value != nullptr && value->is_array() ? Ints(keys) : std::vector<int>{Int(keys, 0)};
}

std::string ConfigReader::Shown(Keys keys) const {
  for (const char* key : keys) {
    const auto it = root_.find(key);
    if (it != root_.end() && !it->is_null()) return ShownValue(*it);
  }
  return "null";
}

std::string ConfigReader::TextOrEmpty(Keys keys) const {
  for (const char* key : keys) {
    const auto it = root_.find(key);
    if (it != root_.end() && it->is_string()) return it->get<std::string>();
  }
  return {};
}

int ConfigReader::Fit(std::int64_t value, const char* what) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  return Require(value <= kMost, fmt::format("{} is {}, more than {}", what, value, kMost))
             ? static_cast<int>(value)
             : 1;
}

}  // namespace culet
