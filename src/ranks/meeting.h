// How ranks of a host meet: over a socket without a file, through which rank 0 gives the others a
// piece of memory.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "culet/ranks.h"
#include "culet/status.h"

namespace culet {

/// A file descriptor that closes itself.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() { Close(); }
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) Close(), fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  void Close() noexcept;
  int fd_ = -1;
};

/// What a rank has once all have met.
struct Met {
  OwnedFd memory;               ///< of `bytes` bytes, zero at first
  std::vector<OwnedFd> others;  ///< rank 0: to each rank, none to itself; the others: to rank 0
};

/// Waits for all ranks, at most options.start_seconds. `take` is called with the memory as soon as
/// this rank has it: on rank 0 before the others do. Errors: as JoinRanks, and what `take` returns.
Result<Met> Meet(const RankOptions& options, std::size_t bytes,
                 const std::function<Status(int memory)>& take);

/// Sends at most a few hundred bytes and a file with them; without one for -1. Errors: NOT_FOUND
/// when nobody reads them.
Status SendWithFile(int fd, const void* data, std::size_t bytes, int file);
/// The file has no descriptor where none came. Errors: as ReceiveAll.
Result<OwnedFd> ReceiveWithFile(int fd, void* data, std::size_t bytes, double seconds);

/// Sends all bytes. Errors: NOT_FOUND when nobody reads them any more.
Status SendAll(int fd, const void* data, std::size_t bytes);
/// Errors: NOT_FOUND when there are no more, or, with seconds above 0, none come for so long.
Status ReceiveAll(int fd, void* data, std::size_t bytes, double seconds = 0);

}  // namespace culet
