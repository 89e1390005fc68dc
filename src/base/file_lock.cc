#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "base/caught.h"
#include "base/file_io.h"

namespace culet {
namespace {

constexpr std::chrono::milliseconds kSilentWait{1000};
constexpr std::chrono::milliseconds kAskEvery{100};

// "process 123 (culet)" from the kernel's own table, which cannot be stale; where that does not
// name it, as on NFS, "another process".
std::string HolderOf(int fd) {
  struct stat info {};
  std::ifstream locks("/proc/locks");
  if (fstat(fd, &info) == 0 && locks) {
    const std::string file =
        fmt::format("{:02x}:{:02x}:{}", major(info.st_dev), minor(info.st_dev), info.st_ino);
    std::string number, kind, mode, access, pid, where, line;
    while (locks >> number >> kind >> mode >> access >> pid >> where && std::getline(locks, line)) {
      if (kind != "FLOCK" || where != file) continue;
      std::string name;
      std::ifstream comm("/proc/" + pid + "/comm");
      if (std::getline(comm, name)) return fmt::format("process {} ({})", pid, name);
    }
  }
  return "another process";
}

}  // namespace

Result<FileLock> FileLock::Acquire(const std::string& path, std::chrono::milliseconds timeout,
                                   const OnWait& on_wait) {
  using Clock = std::chrono::steady_clock;
  // O_NONBLOCK: a pipe that somebody put there would block.
  constexpr int kFlags = O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int fd = OpenFile(path, O_RDWR | kFlags);
  const int cause = errno;
  // Another user's lock file in a shared folder: reading is enough for flock except on NFS.
  if (fd < 0 && cause == EACCES)
    fd = OpenFile(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    return Status(StatusCode::kIo, "the lock file '" + path + "' cannot be opened (" +
                                       std::generic_category().message(cause) +
                                       "); make its folder writable or name another file");
  }
  FileLock lock(fd);
  // A blocking flock could not be given up when its holder is stopped.
  const auto start = Clock::now();
  auto ask_at = start + kSilentWait;
  std::chrono::microseconds pause(100);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Status(StatusCode::kIo, "'" + path + "' cannot be locked (" +
                                         std::generic_category().message(errno) +
                                         "); put the file on a file system with locks");
    }
    const auto now = Clock::now();
    const auto waited = std::chrono::duration<double>(now - start).count();
    bool go_on = now < start + timeout;
    if (go_on && on_wait && now >= ask_at) {
      ask_at = now + kAskEvery;
      go_on = CaughtNo([&] { return on_wait(HolderOf(fd), waited); });
    }
    if (!go_on) {
      return Status(StatusCode::kIo,
                    fmt::format("{} has held the lock '{}' for {:.1f} s; end it or try again",
                                HolderOf(fd), path, waited));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(10'000));
  }
  return lock;
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  // Explicitly: a child that was forked meanwhile has the descriptor too, and close() alone would
  // leave it the lock.
  flock(fd_, LOCK_UN);
  close(fd_);
}

}  // namespace culet
