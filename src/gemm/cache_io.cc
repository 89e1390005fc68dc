#include "gemm/cache_io.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/file_io.h"
#include "gemm/cache_text.h"

namespace culet {

Result<std::optional<std::string>> ReadCacheText(const std::string& path) {
  Result<std::optional<std::string>> text = ReadFile(path, CacheFile::kMaxBytes);
  if (text.ok() && text->has_value()) {
    const Status header = CheckCacheHeader(**text);
    if (!header.ok()) return Status(header.code(), "'" + path + "': " + header.message());
  }
  return text;
}

Result<FileLock> LockCache(const std::string& path, const CacheFile::SaveOptions& options) {
  CULET_RETURN_IF_ERROR(MakeFolderOf(path));
  const std::chrono::duration<double> timeout(std::clamp(options.timeout_s, 0.0, 1e6));
  return FileLock::Acquire(path + ".lock",
                           std::chrono::duration_cast<std::chrono::milliseconds>(timeout),
                           options.on_wait);
}

void KeepDamagedLines(const std::string& cache_path, const std::string& lines) {
  if (lines.empty()) return;
  const std::string path = cache_path + ".damaged";
  const auto old_lines = ReadFile(path, 2 * kMaxDamagedBytes);
  std::error_code ignored;
  if (!old_lines.ok() || std::filesystem::is_symlink(path, ignored)) return;
  std::string kept = old_lines->value_or("");
  if (kept.ends_with(lines)) return;
  const std::size_t had = kept.size();
  if (had < kMaxDamagedBytes) kept += lines.substr(0, kMaxDamagedBytes - had);
  if (kept.size() != had) static_cast<void>(ReplaceFile(path, kept).ok());
}

}  // namespace culet
