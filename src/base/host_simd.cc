#include "base/host_simd.h"

#include "base/simd_targets.h"
// Behind the choice of targets.
#include <fmt/format.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include "culet/device.h"

namespace culet {
namespace {

constexpr std::int64_t kCompiled = HWY_TARGETS;

std::string LevelName(std::int64_t target) {
  std::string name = hwy::TargetName(target);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

// Best first: Highway's masks have the best target in the lowest bit.
std::vector<std::string> LevelNames(std::int64_t targets) {
  std::vector<std::string> names;
  for (; targets != 0; targets &= targets - 1) names.push_back(LevelName(targets & -targets));
  return names;
}

std::int64_t FindTargets() {
  if (const std::int64_t cap = ParseSimd(std::getenv("CULET_SIMD")); cap != 0) {
    hwy::DisableTargets(cap - 1);  // all bits below the cap's: what is better
  }
  const std::int64_t supported = hwy::SupportedTargets();
  // SupportedTargets leaves Highway's own choice at the best of the CPU, whatever is disabled.
  hwy::GetChosenTarget().Update(supported);
  const std::int64_t targets = supported & kCompiled;
  return targets != 0 ? targets : HWY_STATIC_TARGET;
}

}  // namespace

std::int64_t SimdTargets() {
  static const std::int64_t targets = FindTargets();
  return targets;
}

std::int64_t ParseSimd(const char* text) {
  if (text == nullptr) return 0;
  for (std::int64_t rest = kCompiled; rest != 0; rest &= rest - 1) {
    if (LevelName(rest & -rest) == text) return rest & -rest;
  }
  return 0;
}

std::string HostIsa() { return HostSimdLevels().front(); }

std::vector<std::string> HostSimdLevels() { return LevelNames(SimdTargets()); }

Status CheckHostSimd() {
  const char* text = std::getenv("CULET_SIMD");
  if (text == nullptr || ParseSimd(text) != 0) return {};
  return Status(StatusCode::kInvalidArgument,
                fmt::format("CULET_SIMD is '{}'; set it to one of {}, or unset it", text,
                            fmt::join(LevelNames(kCompiled), ", ")));
}

}  // namespace culet
