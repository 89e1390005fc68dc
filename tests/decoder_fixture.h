// Checkpoints with golden outputs: the folder of one, its goldens, and how far a result is from
// them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "culet/safetensors.h"

namespace culet {

/// The folder of a checkpoint of the repository's own: tests/goldens/`name`, of the checkout that
/// CULET_SOURCE names where the tests run elsewhere than they were built.
inline std::string OwnGoldens(const std::string& name) {
  const char* const given = std::getenv("CULET_SOURCE");
  const std::filesystem::path root = given != nullptr ? given : CULET_SOURCE_DIR;
  return (root / "tests" / "goldens" / name).string();
}

/// The folder of a fixture: below CULET_FIXTURES, else below ../shared/fixtures beside the tree; or
/// below the folder of that name and a 2. Empty when it is not there.
inline std::string FixtureFolder(const std::string& name) {
  const char* const given = std::getenv("CULET_FIXTURES");
  const std::filesystem::path root =
      given != nullptr ? std::filesystem::path(given)
                       : std::filesystem::path(CULET_SOURCE_DIR) / ".." / "shared" / "fixtures";
  std::error_code ignored;
  // A second set lies beside the first.
  for (const std::filesystem::path& set : {root, std::filesystem::path(root.string() + "2")}) {
    if (std::filesystem::exists(set / name / "golden.safetensors", ignored))
      return (set / name).string();
  }
  return {};
}

struct Goldens {
  std::vector<std::int32_t> input_ids, greedy_ids;
  std::vector<float> logits, hidden, greedy_margin;
};

/// Empty when the file is not what it should be.
inline std::optional<Goldens> ReadGoldens(const std::string& folder) {
  const auto file = SafetensorsFile::Open(folder + "/golden.safetensors");
  if (!file) return std::nullopt;
  Goldens goldens;
  const auto floats = [&](const char* name, std::vector<float>& to) {
    const SafetensorsTensor* tensor = file->Find(name);
    if (tensor == nullptr || tensor->dtype != "F32") return false;
    to.resize(static_cast<std::size_t>(tensor->elements()));
    std::memcpy(to.data(), tensor->data, static_cast<std::size_t>(tensor->bytes));
    return true;
  };
  const auto ids = [&](const char* name, std::vector<std::int32_t>& to) {
    const SafetensorsTensor* tensor = file->Find(name);
    if (tensor == nullptr || tensor->dtype != "I64") return false;
    std::vector<std::int64_t> wide(static_cast<std::size_t>(tensor->elements()));
    std::memcpy(wide.data(), tensor->data, static_cast<std::size_t>(tensor->bytes));
    to.assign(wide.begin(), wide.end());
    return true;
  };
  const bool all = floats("logits", goldens.logits) && floats("hidden", goldens.hidden) &&
                   floats("greedy_margin", goldens.greedy_margin) &&
                   ids("input_ids", goldens.input_ids) && ids("greedy_ids", goldens.greedy_ids);
  return all ? std::optional(goldens) : std::nullopt;
}

/// ||a - b|| / ||b||; infinite for different lengths.
inline double RelativeL2(const float* a, const float* b, std::size_t count) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < count; ++i) {
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace culet
