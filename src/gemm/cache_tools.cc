#include "culet/cache_tools.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

#include "base/file_io.h"
#include "base/log.h"
#include "gemm/cache_io.h"
#include "gemm/cache_record.h"
#include "gemm/cache_rules.h"
#include "gemm/cache_text.h"

namespace culet {
namespace {

std::string ReasonOf(const CacheFile::Record& record, Usability usability,
                     const DispatchCache& cache) {
  const Kernel* const kernel = cache.FindKernel(record.kernel_id);
  switch (usability) {
    case Usability::kUsable:
      return {};
    case Usability::kOtherDevice:
      return fmt::format("was measured on {}, this device is {}", record.device_class,
                         cache.device_class());
    case Usability::kUnknownKernel:
      return fmt::format("there is no kernel {} here", record.kernel_id);
    case Usability::kUnavailable:
      return kernel != nullptr ? kernel->available().message() : std::string();
    case Usability::kOtherProvider:
      return fmt::format("was measured with version {} of {}, here is {}", record.provider_version,
                         kernel != nullptr ? kernel->desc().provider : "",
                         kernel != nullptr ? kernel->provider_version() : "");
    case Usability::kInfeasible: {
      const std::string why = kernel != nullptr ? WhyNot(*kernel, record.desc) : std::string();
      return why.empty() ? "the kernel has no such swizzle, splits or variant today" : why;
    }
    case Usability::kOtherVersion:
    case Usability::kDamaged:
      break;
  }
  return record.damage;
}

CheckedRecord Check(ParsedRecord parsed, int line, const DispatchCache& cache) {
  CheckedRecord checked;
  checked.record = std::move(parsed.record);
  checked.record.line = line;
  if (parsed.state == RecordState::kSound) {
    const ResolvedRecord resolved = Resolve(checked.record, cache);
    checked.usability = resolved.usability;
    checked.spec = resolved.spec;
  } else {
    checked.usability =
        parsed.state == RecordState::kDamaged ? Usability::kDamaged : Usability::kOtherVersion;
  }
  checked.reason = ReasonOf(checked.record, checked.usability, cache);
  return checked;
}

Status NoSuchCache(const std::string& path) {
  return Status(StatusCode::kNotFound, fmt::format("there is no cache '{}'; name one", path));
}

// A file that has to be there.
Result<std::string> TextOf(const std::string& path) {
  auto text = ReadCacheText(path);
  if (!text.ok()) return text.status();
  if (!text->has_value()) return NoSuchCache(path);
  return **std::move(text);
}

// Replaces a file under its lock by what `compose` makes of its text.
template <class Compose>
Status Rewrite(const std::string& named, const CacheFile::SaveOptions& options,
               const Compose& compose) {
  const Result<std::string> path = FollowLinks(named);
  if (!path.ok()) return path.status();
  // A first look, so that beside a file that is not ours no lock file appears.
  if (const auto text = ReadCacheText(*path); !text.ok()) return text.status();
  const Result<FileLock> lock = LockCache(*path, options);
  if (!lock.ok()) return lock.status();
  const auto old_text = ReadCacheText(*path);
  if (!old_text.ok()) return old_text.status();
  const std::string text = compose(old_text->value_or(""));
  return *old_text == text ? Status() : ReplaceFile(*path, text);
}

// The records of some texts: for each device and problem the best, and what cannot be compared.
class Merger {
 public:
  /// `text` must outlive the merger.
  void Add(std::string_view text, bool is_target) {
    ForEachCacheLine(text, [&](int, std::string_view line) {
      const std::string_view key = RecordKey(line);
      if (key.empty()) {
        ++report_.damaged;
        return;
      }
      ParsedRecord parsed = ReadRecord(line);
      if (parsed.state != RecordState::kSound) {
        others_.push_back(line);
        return;
      }
      const auto [found, is_new] = best_.try_emplace(key, line, std::move(parsed.record));
      if (is_new) {
        report_.added += !is_target;
        return;
      }
      const bool better = ComparePrecedence(parsed.record, found->second.second) > 0;
      if (!is_target) ++(better ? report_.replaced : report_.kept);
      if (better) found->second = {line, std::move(parsed.record)};
    });
  }

  std::string Compose() {
    std::vector<std::string_view> lines = others_;
    for (const auto& [key, entry] : best_) lines.push_back(entry.first);
    CacheText composed = ComposeCacheText(std::move(lines));
    report_.records = composed.records;
    return std::move(composed.text);
  }

  const CacheMergeReport& report() const { return report_; }

 private:
  std::map<std::string_view, std::pair<std::string_view, CacheFile::Record>> best_;
  std::vector<std::string_view> others_;  // of other versions
  CacheMergeReport report_;
};

bool SameLaunch(const CacheFile::Record& a, const CacheFile::Record& b) {
  return a.kernel_id == b.kernel_id && a.swizzle == b.swizzle && a.splits == b.splits &&
         a.serial == b.serial && a.variant == b.variant;
}

// The best record of each problem of a file, by key.
Result<std::map<std::string, CacheFile::Record>> BestOf(const std::string& path) {
  const auto text = TextOf(path);
  if (!text.ok()) return text.status();
  std::map<std::string, CacheFile::Record> best;
  ForEachCacheLine(*text, [&](int line, std::string_view record_text) {
    ParsedRecord parsed = ReadRecord(record_text);
    if (parsed.state != RecordState::kSound) return;
    parsed.record.line = line;
    const auto [found, is_new] =
        best.try_emplace(std::string(RecordKey(record_text)), parsed.record);
    if (!is_new && ComparePrecedence(parsed.record, found->second) > 0) {
      found->second = std::move(parsed.record);
    }
  });
  return best;
}

}  // namespace

const char* ToString(Usability usability) noexcept {
  switch (usability) {
    case Usability::kUsable:
      return "usable";
    case Usability::kOtherDevice:
      return "other device";
    case Usability::kUnknownKernel:
      return "unknown kernel";
    case Usability::kUnavailable:
      return "library absent";
    case Usability::kOtherProvider:
      return "other library version";
    case Usability::kInfeasible:
      return "refused";
    case Usability::kOtherVersion:
      return "other version";
    case Usability::kDamaged:
      return "damaged";
  }
  return "invalid";
}

const char* ToString(CacheDifference::Kind kind) noexcept {
  switch (kind) {
    case CacheDifference::Kind::kOnlyInFirst:
      return "only in the first";
    case CacheDifference::Kind::kOnlyInSecond:
      return "only in the second";
    case CacheDifference::Kind::kOtherLaunch:
      return "other choice";
    case CacheDifference::Kind::kOtherTime:
      return "other time";
  }
  return "invalid";
}

Result<std::vector<CheckedRecord>> CheckCache(const std::string& path, const DispatchCache& cache) {
  const auto text = TextOf(path);
  if (!text.ok()) return text.status();
  std::vector<CheckedRecord> records;
  ForEachCacheLine(*text, [&](int line, std::string_view record) {
    records.push_back(Check(ReadRecord(record), line, cache));
  });
  return records;
}

Result<CacheMergeReport> MergeCaches(std::span<const std::string> from, const std::string& into,
                                     const CacheFile::SaveOptions& options) {
  std::vector<std::string> texts;
  for (const std::string& path : from) {
    auto text = TextOf(path);
    if (!text.ok()) return text.status();
    texts.push_back(*std::move(text));
  }
  CacheMergeReport report;
  CULET_RETURN_IF_ERROR(Rewrite(into, options, [&](const std::string& old_text) {
    Merger merger;
    merger.Add(old_text, true);
    for (const std::string& text : texts) merger.Add(text, false);
    std::string text = merger.Compose();
    report = merger.report();
    return text;
  }));
  Log(LogLevel::kInfo, "cache {}: merged, {} records, {} added, {} replaced", into, report.records,
      report.added, report.replaced);
  return report;
}

Result<std::vector<CacheDifference>> DiffCaches(const std::string& first,
                                                const std::string& second) {
  const auto a = BestOf(first);
  if (!a.ok()) return a.status();
  const auto b = BestOf(second);
  if (!b.ok()) return b.status();
  std::vector<CacheDifference> differences;
  using Kind = CacheDifference::Kind;
  for (const auto& [key, record] : *a) {
    const auto other = b->find(key);
    if (other == b->end()) {
      differences.push_back({Kind::kOnlyInFirst, record, std::nullopt});
    } else if (!SameLaunch(record, other->second)) {
      differences.push_back({Kind::kOtherLaunch, record, other->second});
    } else if (record.time_us != other->second.time_us) {
      differences.push_back({Kind::kOtherTime, record, other->second});
    }
  }
  for (const auto& [key, record] : *b) {
    if (!a->contains(key)) differences.push_back({Kind::kOnlyInSecond, std::nullopt, record});
  }
  return differences;
}

Result<CachePruneReport> PruneCache(const std::string& path, const DispatchCache& cache,
                                    const std::function<bool(const CheckedRecord&)>& remove,
                                    bool dry_run, const CacheFile::SaveOptions& options) {
  CachePruneReport report;
  std::string pruned;
  const auto prune = [&](const std::string& text) {
    report = {};
    std::vector<std::string_view> lines;
    ForEachCacheLine(text, [&](int line, std::string_view record) {
      CheckedRecord checked = Check(ReadRecord(record), line, cache);
      if (checked.usability == Usability::kDamaged || remove(checked)) {
        report.removed.push_back(std::move(checked));
      } else {
        lines.push_back(record);
      }
    });
    CacheText composed = ComposeCacheText(std::move(lines));
    report.kept = composed.records;
    return report.removed.empty() ? text : std::move(composed.text);
  };
  const auto text = TextOf(path);
  if (!text.ok()) return text.status();
  if (dry_run) {
    prune(*text);
  } else {
    CULET_RETURN_IF_ERROR(Rewrite(path, options, prune));
  }
  return report;
}

}  // namespace culet
