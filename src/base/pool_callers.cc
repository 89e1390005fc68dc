#include "base/pool_callers.h"

#include "base/spin_wait.h"

namespace culet {
namespace {

// The calls that the thread is in, and an address that no other thread has.
thread_local int calls = 0;

}  // namespace

void PoolCallers::Enter() {
  if (calls++ > 0 || alone_.load() == &calls) return;
  // Both sides write their own word before they read the other's: one of them sees the other.
  inside_.fetch_add(1);
  if (alone_.load() == nullptr) return;
  std::unique_lock lock(mutex_);
  if (inside_.fetch_sub(1) == 1) inside_.notify_all();
  ++waiting_;
  const bool ended = changed_.wait_for(lock, patience_, [&] { return alone_.load() == nullptr; });
  if (--waiting_ == 0) changed_.notify_all();
  inside_.fetch_add(1);
  if (!ended) disturbed_.store(true);
}

void PoolCallers::Leave() {
  if (--calls > 0 || alone_.load() == &calls) return;
  if (inside_.fetch_sub(1) == 1 && alone_.load() != nullptr) inside_.notify_all();
}

bool PoolCallers::BeginAlone() {
  if (calls > 0 || alone_.load() == &calls) return false;
  {
    std::unique_lock lock(mutex_);
    // Those who waited go first: samples follow each other within microseconds.
    changed_.wait(lock, [&] { return alone_.load() == nullptr && waiting_ == 0; });
    alone_.store(&calls);
  }
  do {
    for (std::uint32_t inside = inside_.load(); inside != 0; inside = inside_.load()) {
      WaitWhileEqual(inside_, inside);
    }
    disturbed_.store(false);  // whoever enters does so before telling
  } while (inside_.load() != 0);
  return true;
}

bool PoolCallers::EndAlone() {
  const bool disturbed = disturbed_.load();
  const std::lock_guard lock(mutex_);
  alone_.store(nullptr);
  changed_.notify_all();
  return !disturbed;
}

}  // namespace culet
