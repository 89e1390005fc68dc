// Cache files on disk, as those see them who write them anew.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/file_lock.h"
#include "culet/dispatch_cache.h"
#include "culet/status.h"

namespace culet {

/// Bytes kept of damaged lines: enough to see what wrote them.
inline constexpr std::size_t kMaxDamagedBytes = std::size_t{1} << 20;

/// The text of a cache, or nothing when there is no file. Errors: as CacheFile::Load.
Result<std::optional<std::string>> ReadCacheText(const std::string& path);

/// The lock of all writers of `path`, whose folder is made. Errors: IO.
Result<FileLock> LockCache(const std::string& path, const CacheFile::SaveOptions& options);

/// Appends the lines to `<cache_path>.damaged`, up to kMaxDamagedBytes in all, but not those of a
/// save that failed and is tried again. Failing here must not fail the save: the lines hold nothing
/// usable.
void KeepDamagedLines(const std::string& cache_path, const std::string& lines);

}  // namespace culet
