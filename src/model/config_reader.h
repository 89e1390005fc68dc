// ConfigReader: integers, flags and lists out of a config.json, with one error that names the key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "culet/status.h"

namespace culet {

/// Reads keys under all their spellings. The first error sticks and later reads return their
/// minimum or fallback, so a caller computes on and asks for status() once, at the end.
class ConfigReader {
 public:
  /// Spellings of one key, the preferred one first. Spellings that are present must agree.
  using Keys = std::initializer_list<const char*>;

  /// `root` must be an object and outlive the reader; `origin` starts every message.
  ConfigReader(const nlohmann::json& root, std::string origin);

  /// An integer in [minimum, 2^31); a missing or null key is an error.
  int Int(Keys keys, int minimum = 1);

  /// The same, but a missing or null key gives `fallback`.
  int IntOr(Keys keys, int fallback, int minimum = 1);

  /// IntOr of a class that has a default for the key, else Int: 0 is none.
  int IntOrDefault(const char* key, int fallback) {
    return fallback > 0 ? IntOr({key}, fallback) : Int({key});
  }

  /// Whether any spelling is present and not null.
  bool Has(Keys keys) const;

  /// Whether the key stands there, be it null.
  bool Stands(const char* key) const { return root_.contains(key); }

  /// A finite number; a missing or null key gives `fallback`.
  double NumberOr(Keys keys, double fallback);

  /// The same above 0; a missing or null key is an error.
  double PositiveNumber(Keys keys);

  /// true or false; a missing or null key gives `fallback`.
  bool FlagOr(Keys keys, bool fallback);

  /// The same; a number is true unless it is 0.
  bool FlagOrNumber(Keys keys, bool fallback);

  /// Fails for a key that is null where the models' own library takes that for another value than a
  /// missing key's.
  void NotNull(const char* key) {
    Require(!Stands(key) || Has({key}),
            std::string(key) + " is null; give a value, or leave it out");
  }

  /// A list of integers >= 0; empty when the key is missing or null.
  std::vector<int> Ints(Keys keys);

  /// A list of finite numbers; empty when the key is missing or null.
  std::vector<double> Numbers(Keys keys);

  /// An integer >= 0 or a list of them. Requires: the key.
  std::vector<int> IntOrInts(Keys keys);

  /// The value as messages show it, short and printable; of the spelling that counts.
  std::string Shown(Keys keys) const;

  /// A text; empty when the key is missing, null or not a text.
  std::string TextOrEmpty(Keys keys) const;

  /// Fails with "origin: sentence" unless `condition`, as UNSUPPORTED. Returns the condition.
  bool Supported(bool condition, const std::string& sentence);

  /// Fails with "origin: sentence" unless `condition`. Returns the condition.
  bool Require(bool condition, const std::string& sentence);

  /// Takes over another reader's error, unless this one has its own.
  void Adopt(const Status& status);

  /// `value` as int; an error that names `what` when it does not fit.
  int Fit(std::int64_t value, const char* what);

  const Status& status() const noexcept { return status_; }

 private:
  /// The value and the spelling under which it was found; null when there is none.
  const nlohmann::json* Find(Keys keys, const char** found);
  int Checked(const nlohmann::json& value, const char* key, int minimum);

  const nlohmann::json& root_;
  std::string origin_;
  Status status_;
};

}  // namespace culet
