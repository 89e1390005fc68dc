// CacheFile: a DispatchCache on disk that many processes share.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <unordered_map>

#include "base/file_io.h"
#include "base/log.h"
#include "culet/dispatch_cache.h"
#include "gemm/cache_io.h"
#include "gemm/cache_record.h"
#include "gemm/cache_rules.h"
#include "gemm/cache_text.h"
#include "gemm/exchange_record.h"

namespace culet {
namespace {

// An entry of the cache as a line, and then the line that wins over it in the file.
struct Merging {
  LaunchSpec spec;
  std::string line;
};

struct Merged {
  CacheText file;
  std::string damaged;  // the lines that are in it no more, kMaxDamagedBytes at most
};

// The file's text with the cache's entries in it. Only usable records of the same problem compete;
// every other intact line stays.
Merged Merge(std::string_view old_text, const DispatchCache& cache) {
  std::vector<Merging> entries;
  for (const auto& [desc, spec] : cache.Entries(CacheLayer::kUser)) {
    entries.push_back({spec, WriteRecord(cache.device_class(), desc, spec)});
  }
  std::unordered_map<std::string, Merging*> by_key;
  for (Merging& entry : entries) by_key.emplace(RecordKey(entry.line), &entry);

  std::vector<std::string_view> records;
  std::string damaged;
  ForEachCacheLine(old_text, [&](int, std::string_view line) {
    const std::string_view key = RecordKey(line);
    if (key.empty()) {
      const std::size_t room = kMaxDamagedBytes - damaged.size();
      if (room > 1) (damaged += line.substr(0, room - 1)) += '\n';
      return;
    }
    if (const auto mine = by_key.find(std::string(key)); mine != by_key.end()) {
      const ParsedRecord theirs = ReadRecord(line);
      const ResolvedRecord resolved =
          theirs.state == RecordState::kSound ? Resolve(theirs.record, cache) : ResolvedRecord();
      if (resolved.usability == Usability::kUsable) {
        if (ComparePrecedence(resolved.spec, mine->second->spec) >= 0) {
          *mine->second = {resolved.spec, std::string(line)};
        }
        return;
      }
    }
    records.push_back(line);
  });
  for (const Merging& entry : entries) records.push_back(entry.line);
  return {ComposeCacheText(std::move(records)), std::move(damaged)};
}

}  // namespace

CacheFile::CacheFile(std::string path) : path_(std::move(path)) {}

Result<std::string> CacheFile::DefaultPath(const std::string& override_path) {
  const auto environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  std::string path = !override_path.empty() ? override_path : environment("CULET_CACHE");
  if (path == "off") return std::string();
  if (!path.empty()) return path;
  std::filesystem::path folder = environment("XDG_CACHE_HOME");
  if (!folder.is_absolute()) {  // the XDG specification: a relative one is to be ignored
    const std::string home = environment("HOME");
    if (home.empty()) {
      return Status(StatusCode::kNotFound,
                    "there is no place for the cache: HOME, XDG_CACHE_HOME and CULET_CACHE are not "
                    "set; set CULET_CACHE to a file or to 'off'");
    }
    folder = std::filesystem::path(home) / ".cache";
  }
  return (folder / "culet" / "dispatch.jsonl").string();
}

Result<ImportReport> CacheFile::Load(DispatchCache& cache, CacheLayer layer) const {
  ImportReport report;
  if (path_.empty()) return report;
  Result<std::optional<std::string>> text = ReadCacheText(path_);
  if (!text.ok()) return text.status();
  std::istringstream stream(std::move(*text).value_or(""));
  cache.Import(stream, &report, layer);
  const bool sound = report.unknown_kernel + report.other_provider + report.infeasible +
                         report.other_version + report.damaged ==
                     0;
  Log(sound ? LogLevel::kInfo : LogLevel::kWarning, "cache {}: {}", path_, report.ToString());
  return report;
}

Result<int> CacheFile::Save(const DispatchCache& cache, const SaveOptions& options) const {
  if (path_.empty()) return 0;
  const Result<std::string> path = FollowLinks(path_);
  if (!path.ok()) return path.status();
  // A first look, so that beside a file that is not ours no lock file appears.
  if (const auto text = ReadCacheText(*path);
      !text.ok() || (!text->has_value() && cache.Entries(CacheLayer::kUser).empty())) {
    return text.ok() ? Result<int>(0) : text.status();
  }
  const Result<FileLock> lock = LockCache(*path, options);
  const auto old_text = ReadCacheText(*path);
  if (!old_text.ok()) return old_text.status();
  const Merged merged = Merge(old_text->value_or(""), cache);
  if (*old_text == merged.file.text) return merged.file.records;
  // Only now: a complete file in a read-only folder need not be written.
  if (!lock.ok()) return lock.status();
  KeepDamagedLines(*path, merged.damaged);
  CULET_RETURN_IF_ERROR(ReplaceFile(*path, merged.file.text));
  Log(LogLevel::kInfo, "cache {}: saved, {} records", *path, merged.file.records);
  return merged.file.records;
}

Status CacheFile::CheckSave(const SaveOptions& options) const {
  if (path_.empty()) return {};
  const Result<std::string> path = FollowLinks(path_);
  if (!path.ok()) return path.status();
  // As in Save: nothing appears beside a file that is not ours.
  if (const auto text = ReadCacheText(*path); !text.ok()) return text.status();
  const Result<FileLock> lock = LockCache(*path, options);
  if (!lock.ok()) return lock.status();
  return CheckReplaceFile(*path);
}

Result<std::vector<CacheFile::Record>> CacheFile::List() const {
  const Result<std::optional<std::string>> text = ReadCacheText(path_);
  if (!text.ok()) return text.status();
  if (!text->has_value()) {
    return Status(StatusCode::kNotFound, "there is no cache '" + path_ + "'; tune first");
  }
  std::vector<Record> records;
  ForEachCacheLine(**text, [&](int line, std::string_view text_of_line) {
    if (IsExchangeRecord(text_of_line)) return;
    records.push_back(ReadRecord(text_of_line).record);
    records.back().line = line;
  });
  return records;
}

}  // namespace culet
