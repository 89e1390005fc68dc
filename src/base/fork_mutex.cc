#include "base/fork_mutex.h"

#include <pthread.h>

namespace culet {

// All that live, in a list that its own mutex guards.
struct ForkMutexes {
  static constinit inline std::mutex guard;
  static constinit inline ForkMutex* first = nullptr;
  static constinit inline bool registered = false;

  static void BeforeFork() {
    guard.lock();
    for (ForkMutex* mutex = first; mutex != nullptr; mutex = mutex->next_) mutex->lock();
  }
  static void AfterFork() {
    for (ForkMutex* mutex = first; mutex != nullptr; mutex = mutex->next_) mutex->unlock();
    guard.unlock();
  }

  static void Add(ForkMutex* mutex) {
    const std::lock_guard lock(guard);
    if (!registered) registered = pthread_atfork(BeforeFork, AfterFork, AfterFork) == 0;
    mutex->next_ = first;
    if (first != nullptr) first->previous_ = mutex;
    first = mutex;
  }
  static void Remove(ForkMutex* mutex) {
    const std::lock_guard lock(guard);
    (mutex->previous_ != nullptr ? mutex->previous_->next_ : first) = mutex->next_;
    if (mutex->next_ != nullptr) mutex->next_->previous_ = mutex->previous_;
  }
};

ForkMutex::ForkMutex() { ForkMutexes::Add(this); }
ForkMutex::~ForkMutex() { ForkMutexes::Remove(this); }

}  // namespace culet
