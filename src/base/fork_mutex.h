// A mutex that a forked child finds free, with what it guards whole.
#pragma once

#include <mutex>

namespace culet {

/// fork copies the calling thread alone. A mutex that another one holds at that moment would stay
/// locked in the child for ever, so these are all taken before a fork and given back after it, in
/// both processes. Lockable. No thread may make or take one, nor fork, while it holds one.
class ForkMutex {
 public:
  ForkMutex();
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  friend struct ForkMutexes;
  std::mutex mutex_;
  ForkMutex* previous_ = nullptr;  // of all there are
  ForkMutex* next_ = nullptr;
};

}  // namespace culet
