#include "base/file_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
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

// Keeps a signal that a failed write sends from this thread, to which it is sent.
class BlockedSignal {
 public:
  explicit BlockedSignal(int signal) noexcept {
    sigemptyset(&signal_);
    sigaddset(&signal_, signal);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, signal) == 1;
    blocked_ = pthread_sigmask(SIG_BLOCK, &signal_, &before_) == 0;
  }
  ~BlockedSignal() {
    if (blocked_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignal(const BlockedSignal&) = delete;
  BlockedSignal& operator=(const BlockedSignal&) = delete;

  /// After the failed write; keeps errno. Where the signal is ignored, none is there.
  void Discard() const noexcept {
    const int cause = errno;
    constexpr timespec kAtOnce{};
    if (blocked_ && !was_pending_) (void)sigtimedwait(&signal_, nullptr, &kAtOnce);
    errno = cause;
  }

 private:
  sigset_t signal_, before_;
  bool was_pending_ = false, blocked_ = false;
};

// A name of its own even under the lock: where locks do not work, two writers must not share it.
std::string TemporaryOf(const std::string& path) {
  return path + kTemporaryMark + std::to_string(getpid()) + "-" +
         std::to_string(std::random_device()());
}

fs::path FolderOf(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Only writers make these names, and only under the lock, so none is in use now.
void RemoveLeftovers(const fs::path& file) {
  const std::string prefix = file.filename().string() + kTemporaryMark;
  const fs::path folder = FolderOf(file);
  for (const std::string& name : NamesIn(folder.string())) {
    std::error_code ignored;  // another user's: nothing to be done
    if (name.starts_with(prefix)) fs::remove(folder / name, ignored);
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

std::string WhyNoLibrary(const std::string& name) {
  struct stat info {};
  if (name.find('/') == std::string::npos || stat(name.c_str(), &info) != 0 ||
      S_ISREG(info.st_mode)) {
    return {};
  }
  return "'" + name + "' is not a regular file";
}

std::vector<std::string> NamesIn(const std::string& folder) {
  // std::filesystem::directory_iterator ends the process where it finds no memory (libstdc++ 12).
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  std::vector<std::string> names;
  while (const dirent* const entry = open != nullptr ? readdir(open.get()) : nullptr) {
    names.emplace_back(entry->d_name);
  }
  return names;
}

bool WriteAll(int fd, std::string_view& text) noexcept {
  const BlockedSignal size(SIGXFSZ), pipe(SIGPIPE);
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    if (written >= 0 || errno == EINTR) continue;
    if (errno == EFBIG) size.Discard();
    if (errno == EPIPE) pipe.Discard();
    return false;
  }
  return true;
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
  const std::string folder_path = FolderOf(path).string();
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
  const Descriptor folder(OpenFile(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)fsync(folder.get());
  return {};
}

}  // namespace culet
