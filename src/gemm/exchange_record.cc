// FindExchange and SaveExchange: {"device":...,"exchange":{"ranks":2,"wire":"float32"},
// "launch":{"push_bytes":...,"two_shot_bytes":...},"library":...,"checksum":...}.
#include "gemm/exchange_record.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/json_text.h"
#include "culet/cache_layers.h"
#include "gemm/cache_io.h"
#include "gemm/cache_record.h"
#include "gemm/cache_text.h"

namespace culet {
namespace {

constexpr std::string_view kExchangeMark = ",\"exchange\":{";

std::string LineOf(const std::string& device_class, int ranks, const ExchangeChoice& choice) {
  return SealRecord(fmt::format(
      R"({{"device":{}{}"ranks":{},"wire":"{}"}},"launch":{{"push_bytes":{},"two_shot_bytes":{}}})",
      JsonText(device_class), kExchangeMark, ranks, ToString(choice.wire), choice.push_bytes,
      choice.two_shot_bytes));
}

// The file's line with the key, or nothing.
std::optional<ExchangeChoice> FindIn(const std::string& path, std::string_view key, DataType wire) {
  const auto text = ReadCacheText(path);
  if (!text.ok() || !text->has_value()) return std::nullopt;
  std::optional<ExchangeChoice> found;
  ForEachCacheLine(**text, [&](int, std::string_view line) {
    if (RecordKey(line) != key) return;
    const nlohmann::json json = ParseJson(line);
    const auto launch = json.find("launch");
    if (launch == json.end() || !launch->is_object()) return;
    ExchangeChoice choice{.wire = wire, .measured = true};
    for (const auto& [name, to] : {std::pair("push_bytes", &choice.push_bytes),
                                   std::pair("two_shot_bytes", &choice.two_shot_bytes)}) {
      const auto value = launch->find(name);
      if (value == launch->end() || !value->is_number_integer()) return;
      *to = std::max<std::int64_t>(value->get<std::int64_t>(), 0);
    }
    found = choice;
  });
  return found;
}

}  // namespace

bool IsExchangeRecord(std::string_view line) {
  return line.find(kExchangeMark) != std::string_view::npos && !RecordKey(line).empty();
}

std::optional<ExchangeChoice> FindExchange(const std::string& cache_path,
                                           const std::string& device_class, int ranks,
                                           DataType wire) {
  if (cache_path.empty()) return std::nullopt;
  const std::string line = LineOf(device_class, ranks, {.wire = wire});
  std::vector<LowerLayer> files = LowerLayers(device_class);
  files.push_back({CacheLayer::kUser, cache_path, true});
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    if (!file->exists) continue;
    if (const auto found = FindIn(file->path, RecordKey(line), wire)) return found;
  }
  return std::nullopt;
}

Status SaveExchange(const std::string& cache_path, const std::string& device_class, int ranks,
                    const ExchangeChoice& choice) {
  if (cache_path.empty()) return {};
  const auto path = FollowLinks(cache_path);
  if (!path.ok()) return path.status();
  // As CacheFile::Save: nothing appears beside a file that is none.
  if (const auto text = ReadCacheText(*path); !text.ok()) return text.status();
  const auto lock = LockCache(*path, {});
  if (!lock.ok()) return lock.status();
  const auto old_text = ReadCacheText(*path);
  if (!old_text.ok()) return old_text.status();
  const std::string text = old_text->value_or("");
  const std::string own = LineOf(device_class, ranks, choice);
  std::vector<std::string_view> lines = {own};
  ForEachCacheLine(text, [&](int, std::string_view line) {
    if (RecordKey(line) != RecordKey(own)) lines.push_back(line);
  });
  return ReplaceFile(*path, ComposeCacheText(std::move(lines)).text);
}

}  // namespace culet
