// What the metadata of a GGUF file says under the keys of one architecture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "culet/status.h"
#include "model/gguf_file.h"

namespace culet {

/// A value of metadata in a message: short, printable.
std::string ShownGgufValue(const nlohmann::json& value);

/// float32 as the shortest decimal number that is it.
double ShortestDecimal(double stored);

/// Keys below a prefix, and what they must hold. The first error sticks, and names the file, the
/// key and the value.
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  const Status& status() const noexcept { return status_; }
  const std::string& prefix() const noexcept { return prefix_; }

  /// Null where the file has none.
  const nlohmann::json* Find(const std::string& key) const;

  /// A whole number above 0 of layers that all have the same; a list says it for each.
  std::int64_t Count(const std::string& key);
  std::int64_t CountOr(const std::string& key, std::int64_t fallback) {
    return Find(key) == nullptr ? fallback : Count(key);
  }
  /// A whole number that may be 0, which it also is where it is missing.
  std::int64_t CountOrZero(const std::string& key);

  /// A number above 0. Missing without a fallback: an error.
  double Number(const std::string& key, std::optional<double> fallback = {});

  /// True or false; false where it is missing.
  bool Flag(const std::string& key);
  /// One of each layer, in the file true and false or whole numbers; empty where it is missing.
  std::vector<bool> Flags(const std::string& key, std::int64_t layers);

  std::string Text(const std::string& key);

  /// UNSUPPORTED with the sentence.
  void Supported(bool condition, const std::string& sentence) {
    if (!condition) Fail(StatusCode::kUnsupported, sentence);
  }

 private:
  void Fail(StatusCode code, const std::string& sentence);
  std::int64_t Whole(const std::string& key, const nlohmann::json& value, int least);

  const GgufFile& file_;
  std::string prefix_;
  Status status_;
};

}  // namespace culet
