#include "culet/cache_layers.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace culet {
namespace {

namespace fs = std::filesystem;

bool IsThere(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The folder of the file that this code is in: libculet.so, or a program that it is linked into.
fs::path OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&LowerLayers), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const fs::path file = fs::canonical(info.dli_fname, error);
  if (!error) return file.parent_path();
  // A program that was started by its name alone.
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : self.parent_path();
}

// Where shipped tables lie; nothing when there are to be none.
std::optional<fs::path> ShippedFolder() {
  if (const char* named = std::getenv("CULET_TUNED"); named != nullptr && *named != '\0') {
    if (std::string_view(named) == "off") return std::nullopt;
    return named;
  }
  const fs::path own = OwnFolder();
  if (own.empty()) return std::nullopt;
  const fs::path beside = own / "tuned";
  if (IsThere(beside)) return beside;
  // <prefix>/bin, <prefix>/lib and <prefix>/lib/x86_64-linux-gnu.
  fs::path prefix = own.parent_path();
  for (int up = 0; up < 2; ++up, prefix = prefix.parent_path()) {
    const fs::path shared = prefix / "share" / "culet" / "tuned";
    if (IsThere(shared)) return shared;
  }
  return beside;
}

std::optional<fs::path> SiteFile() {
  const char* named = std::getenv("CULET_SITE_CACHE");
  if (named == nullptr || *named == '\0') return "/etc/culet/dispatch.jsonl";
  if (std::string_view(named) == "off") return std::nullopt;
  return named;
}

}  // namespace

std::string TableName(const std::string& device_class) {
  std::string name = device_class;
  std::ranges::replace(name, '/', '_');
  return name + ".jsonl";
}

std::vector<LowerLayer> LowerLayers(const std::string& device_class) {
  std::vector<LowerLayer> layers;
  const auto add = [&](CacheLayer layer, const std::optional<fs::path>& path) {
    if (path) layers.push_back({layer, path->string(), IsThere(*path)});
  };
  if (const auto folder = ShippedFolder()) {
    add(CacheLayer::kShipped, *folder / TableName(device_class));
  }
  add(CacheLayer::kSite, SiteFile());
  return layers;
}

std::vector<LoadedLayer> LoadLowerLayers(DispatchCache& cache) {
  std::vector<LoadedLayer> loaded;
  for (LowerLayer& file : LowerLayers(cache.device_class())) {
    if (!file.exists) continue;
    auto report = CacheFile(file.path).Load(cache, file.layer);
    if (!report.ok()) {
      Log(LogLevel::kWarning, "the {} cache is not used: {}", ToString(file.layer),
          report.status().message());
    }
    LoadedLayer layer{std::move(file), report.status(), {}};
    if (report.ok()) layer.report = *std::move(report);
    loaded.push_back(std::move(layer));
  }
  return loaded;
}

}  // namespace culet
