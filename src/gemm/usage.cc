#include "gemm/usage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string_view>
#include <system_error>

#include "base/file_io.h"
#include "base/log.h"
#include "culet/dispatch_cache.h"
#include "gemm/cache_record.h"

namespace culet {
namespace {

constexpr std::string_view kHeader = R"({"format":"culet-untuned","version":1})";
// A serving process may meet a new number of tokens in each step.
constexpr std::size_t kMostProblems = 16384;

// Appended as one write, which other processes' lines do not cut.
Status Append(const std::string& path, const std::string& line) {
  CULET_RETURN_IF_ERROR(MakeFolderOf(path));
  const int file = OpenFile(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK);
  const auto failed = [&] {
    const std::string words = std::generic_category().message(errno);
    if (file >= 0) close(file);
    return Status(StatusCode::kIo, fmt::format("'{}' cannot be written ({})", path, words));
  };
  if (file < 0) return failed();
  struct stat status {};
  if (fstat(file, &status) != 0) return failed();
  if (!S_ISREG(status.st_mode)) {
    close(file);
    return Status(StatusCode::kIo, fmt::format("'{}' is not a regular file", path));
  }
  std::string text = line + '\n';
  if (status.st_size == 0) text = std::string(kHeader) + '\n' + text;
  if (write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) return failed();
  return close(file) == 0 ? Status() : Status(StatusCode::kIo, "close failed");
}

}  // namespace

void Usage::Note(const GemmDesc& desc, bool measured) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = measured_.find(desc);
    if (found != measured_.end()) {
      found->second = measured;
      return;
    }
    if (measured_.size() >= kMostProblems) return;
    measured_.emplace(desc, measured);
  }
  if (measured || file_.empty()) return;
  if (const Status written = Append(file_, WriteProblem(device_class_, desc)); !written.ok()) {
    Log(LogLevel::kWarning, "an untuned problem was not written down: {}", written.message());
  }
}

Coverage Usage::coverage() const {
  const std::lock_guard lock(mutex_);
  Coverage coverage;
  for (const auto& [desc, measured] : measured_) {
    ++coverage.problems;
    coverage.measured += measured;
  }
  return coverage;
}

Result<UntunedFile> ReadUntuned(const std::string& path) {
  const auto text = ReadFile(path, CacheFile::kMaxBytes);
  if (!text.ok()) return text.status();
  if (!text->has_value()) {
    return Status(StatusCode::kNotFound,
                  fmt::format("there is no file '{}'; CULET_RECORD={} writes one", path, path));
  }
  std::string_view left = **text;
  UntunedFile file;
  std::map<std::pair<std::string, GemmDesc>, std::size_t> places;
  bool headed = false;
  while (!left.empty()) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    if (line == kHeader) {  // also between files that were put one behind the other
      headed = true;
      continue;
    }
    if (!headed) break;
    if (line.empty()) continue;
    ParsedRecord parsed = ReadProblem(line);
    if (parsed.state != RecordState::kSound) {
      ++file.unreadable;
      continue;
    }
    const auto [place, is_new] =
        places.try_emplace({parsed.record.device_class, parsed.record.desc}, file.problems.size());
    if (is_new) {
      file.problems.push_back({std::move(parsed.record.device_class), parsed.record.desc, 1});
    } else {
      ++file.problems[place->second].times;
    }
  }
  if (!headed && !(*text)->empty()) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("'{}': the first line is not that of a file of untuned problems, "
                              "which CULET_RECORD writes; name another",
                              path));
  }
  return file;
}

}  // namespace culet
