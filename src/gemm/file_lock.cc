#include "gemm/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>

namespace culet {

Result<FileLock> FileLock::Acquire(const std::string& path, std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr int kFlags = O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  int fd = open(path.c_str(), O_RDWR | kFlags, 0666);
  // Another user's lock file in a shared folder: reading is enough for flock except on NFS.
  if (fd < 0 && errno == EACCES) fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return Status(StatusCode::kIo, "the lock file '" + path + "' cannot be opened (" +
                                       std::generic_category().message(errno) +
                                       "); make its folder writable or name another file");
  }
  FileLock lock(fd);
  // A blocking flock could not be given up when its holder is stopped.
  const auto deadline = Clock::now() + timeout;
  std::chrono::microseconds pause(100);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Status(StatusCode::kIo, "'" + path + "' cannot be locked (" +
                                         std::generic_category().message(errno) +
                                         "); put the file on a file system with locks");
    }
    if (Clock::now() >= deadline) {
      return Status(StatusCode::kIo, "another process has held the lock '" + path + "' for " +
                                         std::to_string(timeout.count()) +
                                         " ms; end it or try again");
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
