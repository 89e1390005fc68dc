// A lock between processes that dies with its holder.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "culet/status.h"

namespace culet {

/// Exclusive flock(2) on a file of its own beside the data: the data file is replaced by rename, so
/// a lock on it would be a lock on a file that is no longer there. The kernel frees the lock when
/// its holder ends, however it ends; there is no stale state to detect. The lock file stays: to
/// remove it would let two processes hold locks on two files of one name.
///
/// flock rather than fcntl(F_SETLK): the latter belongs to the process, not to the descriptor, so
/// two threads would both "have" it and any close() of the file would drop it. On NFS, Linux passes
/// flock to the server; where a mount has locking switched off, two hosts may merge at once and one
/// may miss the other's records, but ReplaceFile still never lets a reader see half a file.
class FileLock {
 public:
  /// From one second on asked ten times a second; false gives up. `holder` is who has the lock, in
  /// words. May be null.
  using OnWait = std::function<bool(const std::string& holder, double waited_s)>;

  /// Waits until the lock is free. Errors: IO when `path` cannot be opened or locked, another
  /// process holds on to the lock longer than `timeout`, or `on_wait` gave up.
  static Result<FileLock> Acquire(const std::string& path, std::chrono::milliseconds timeout,
                                  const OnWait& on_wait = nullptr);

  ~FileLock();
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;

 private:
  explicit FileLock(int fd) noexcept : fd_(fd) {}
  int fd_;
};

}  // namespace culet
