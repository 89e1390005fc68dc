#include "base/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

namespace culet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemporaryMark = ".tmp-";
constexpr std::size_t kChunk = std::size_t{1} << 16;

Status IoError(const std::string& path, const std::string& what, int error) {
  return Status(StatusCode::kIo, "'" + path + "' " + what + " (" +
                                     std::generic_category().message(error) +
                                     "); check the folder's permissions and free space, or name "
                                     "another file");
}

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }
  /// 0, or -1 with errno: a network file system reports a failed write here.
  int Close() noexcept { return fd_ >= 0 ? close(std::exchange(fd_, -1)) : 0; }

 private:
  int fd_;
};

bool WriteAll(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// A name of its own even under the lock: where locks do not work, two writers must not share it.
std::string TemporaryOf(const std::string& path) {
  return path + kTemporaryMark + std::to_string(getpid()) + "-" +
         std::to_string(std::random_device()());
}

fs::path FolderOf(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Only writers make these names, and only under the lock, so none is in use now.
void RemoveLeftovers(const fs::path& file) noexcept {
  const std::string prefix = file.filename().string() + kTemporaryMark;
  std::error_code error;
  for (fs::directory_iterator entry(FolderOf(file), error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;  // another user's: nothing to be done
    if (entry->path().filename().string().starts_with(prefix)) fs::remove(entry->path(), ignored);
  }
}

}  // namespace

int OpenFile(const std::string& path, int flags) noexcept {
  const int fd = open(path.c_str(), flags, 0666);
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int cause = errno;
  close(fd);
  errno = cause;
  return above;
}

Result<std::optional<std::string>> ReadFile(const std::string& path, std::size_t max_bytes) {
  // O_NONBLOCK: a pipe without a writer would block for ever.
  const Descriptor file(OpenFile(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT) return std::optional<std::string>();
    return IoError(path, "cannot be read", errno);
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return IoError(path, "cannot be read", errno);
  if (!S_ISREG(info.st_mode)) {
    return Status(StatusCode::kDataLoss,
                  "'" + path + "' is " +
                      (S_ISDIR(info.st_mode) ? "a folder" : "not a regular file") +
                      "; name a file");
  }
  const Status too_large(StatusCode::kDataLoss, "'" + path + "' is larger than " +
                                                    std::to_string(max_bytes) +
                                                    " bytes; name another file or move it away");
  if (static_cast<std::uintmax_t>(info.st_size) > max_bytes) return too_large;
  std::string text;
  text.reserve(static_cast<std::size_t>(info.st_size) + kChunk);
  for (;;) {
    const std::size_t had = text.size();
    text.resize(had + kChunk);
    ssize_t got = 0;
    do {
      got = read(file.get(), text.data() + had, kChunk);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return IoError(path, "cannot be read", errno);
    text.resize(had + static_cast<std::size_t>(got));
    if (text.size() > max_bytes) return too_large;
    if (got == 0) return std::optional<std::string>(std::move(text));
  }
}

Result<std::string> FollowLinks(const std::string& path) {
  fs::path current = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(current, error); ++links) {
    constexpr int kMaxLinks = 40;  // as Linux does
    if (links == kMaxLinks) return IoError(path, "cannot be followed", ELOOP);
    const fs::path target = fs::read_symlink(current, error);
    if (error) return IoError(path, "cannot be followed", error.value());
    current = current.parent_path() / target;  // an absolute target replaces all
  }
  return current.string();
}

Status MakeFolderOf(const std::string& path) {
  std::error_code error;
  fs::create_directories(FolderOf(path), error);
  if (error) return IoError(path, "has no folder and it cannot be made", error.value());
  return {};
}

Status CheckReplaceFile(const std::string& path) {
  const std::string temporary = TemporaryOf(path);
  const Descriptor out(OpenFile(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC));
  if (out.get() < 0) return IoError(path, "cannot be written", errno);
  unlink(temporary.c_str());
  return {};
}

Status ReplaceFile(const std::string& path, std::string_view text) {
  RemoveLeftovers(path);
  const std::string temporary = TemporaryOf(path);
  Descriptor out(OpenFile(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC));
  if (out.get() < 0) return IoError(path, "cannot be written", errno);
  const auto fail = [&](int cause) {
    unlink(temporary.c_str());
    return IoError(path, "cannot be written", cause);
  };
  struct stat old {};
  if (stat(path.c_str(), &old) == 0 && fchmod(out.get(), old.st_mode & 07777) != 0) {
    return fail(errno);
  }
  if (!WriteAll(out.get(), text) || fsync(out.get()) != 0 || out.Close() != 0) return fail(errno);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return fail(errno);

  // The new text is in place; without this a power cut may bring the old one back. Some network
  // file systems cannot sync a folder, and their rename is already durable.
  const Descriptor folder(OpenFile(FolderOf(path).string(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)fsync(folder.get());
  return {};
}

}  // namespace culet
