// Tools for cache files: merging, comparing, checking and cleaning them, whatever their device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "culet/dispatch_cache.h"
#include "culet/status.h"

namespace culet {

/// What a process can do with a record.
enum class Usability : std::uint8_t {
  kUsable,
  kOtherDevice,
  kUnknownKernel,
  kUnavailable,    ///< the kernel's library is absent or left out
  kOtherProvider,  ///< measured with another version of the kernel's library
  kInfeasible,     ///< the kernel refuses the problem, the swizzle, the splits or the variant today
  kOtherVersion,   ///< intact, but with fields or names that this version does not know
  kDamaged,
};
/// "usable", "other device", ...
const char* ToString(Usability) noexcept;

/// A record, and what a process with `cache`'s kernels and device can do with it.
struct CheckedRecord {
  CacheFile::Record record;
  Usability usability = Usability::kDamaged;
  LaunchSpec spec;     ///< set when kUsable
  std::string reason;  ///< for people; empty when kUsable
};

/// Every record of a file. Errors: as CacheFile::List.
Result<std::vector<CheckedRecord>> CheckCache(const std::string& path, const DispatchCache& cache);

struct CacheMergeReport {
  int records = 0;   ///< in the file now
  int added = 0;     ///< of problems that it did not have
  int replaced = 0;  ///< better than what it had
  int kept = 0;      ///< not better, or the same
  int damaged = 0;   ///< lines that nobody can use; left out
};

/// Merges files into `into`, which may exist: of records of one device and problem the better one
/// stays (docs/cache-format.md says which), all others stay as they are. Written under the file's
/// lock, as a whole, and only if it changes. Errors: NOT_FOUND for a file of `from` that is not
/// there; as CacheFile::Load and CacheFile::Save.
Result<CacheMergeReport> MergeCaches(std::span<const std::string> from, const std::string& into,
                                     const CacheFile::SaveOptions& options = {});

/// A problem on which two files differ.
struct CacheDifference {
  enum class Kind : std::uint8_t {
    kOnlyInFirst,
    kOnlyInSecond,
    kOtherLaunch,  ///< another kernel, swizzle, splits, variant, or serial
    kOtherTime,    ///< the same launch, measured with another result
  } kind = Kind::kOtherLaunch;
  std::optional<CacheFile::Record> first, second;
};
/// "only in the first", ...
const char* ToString(CacheDifference::Kind) noexcept;

/// What differs between two files, by problem; damaged lines and records of other versions are left
/// out. Errors: as CacheFile::List.
Result<std::vector<CacheDifference>> DiffCaches(const std::string& first,
                                                const std::string& second);

struct CachePruneReport {
  std::vector<CheckedRecord> removed;
  int kept = 0;
};

/// Removes the records of which `remove` says so, and lines that nobody can read; with `dry_run`
/// only says which. Written as MergeCaches. Errors: as CacheFile::List and CacheFile::Save.
Result<CachePruneReport> PruneCache(const std::string& path, const DispatchCache& cache,
                                    const std::function<bool(const CheckedRecord&)>& remove,
                                    bool dry_run, const CacheFile::SaveOptions& options = {});

}  // namespace culet
