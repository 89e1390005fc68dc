#include "base/pool_callers.h"

#include <algorithm>
#include <thread>

#include "base/spin_wait.h"

namespace culet {
namespace {

// The calls that the thread is in, and an address that no other thread has.
thread_local int calls = 0;

// A product of another thread is waited for so long; one that lasts longer hangs, for all that a
// tuner can know.
constexpr std::chrono::minutes kLongestWait{1};

// How often a wait for others looks whether it is over.
constexpr std::chrono::microseconds kPollEvery{200};

}  // namespace

void PoolCallers::Enter() {
  if (calls++ > 0 || alone_.load() == &calls) return;
  // Both sides write their own word before they read the other's: one of them sees the other.
  inside_.fetch_add(1);
  if (alone_.load() == nullptr) return;
  std::unique_lock lock(mutex_);
  inside_.fetch_sub(1);
  ++waiting_;
  const bool ended =
      changed_.wait_for(lock, patience_now_, [&] { return alone_.load() == nullptr; });
  if (--waiting_ == 0) changed_.notify_all();
  inside_.fetch_add(1);
  if (!ended) disturbed_.store(true);
}

void PoolCallers::Leave() {
  if (--calls > 0 || alone_.load() == &calls) return;
  inside_.fetch_sub(1);
}

PoolCallers::Alone PoolCallers::BeginAlone(Milliseconds patience,
                                           const std::function<bool()>& give_up) {
  if (calls > 0 || alone_.load() == &calls) return Alone::kWithin;
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  const auto too_long = [&] {
    return (give_up && give_up()) || std::chrono::steady_clock::now() >= deadline;
  };
  {
    std::unique_lock lock(mutex_);
    // Those who waited go first: samples follow each other within microseconds.
    const auto free = [&] { return alone_.load() == nullptr && waiting_ == 0; };
    while (!free()) {
      if (too_long()) return Alone::kGaveUp;
      changed_.wait_for(lock, 50 * kPollEvery, free);
    }
    patience_now_ = std::max(patience, patience_);
    alone_.store(&calls);
  }
  do {
    // Most calls end within the time of a few looks.
    for (int look = 0; inside_.load() != 0; ++look) {
      if (look < 1000) {
        CpuRelax();
        continue;
      }
      if (too_long()) {
        static_cast<void>(EndAlone());
        return Alone::kGaveUp;
      }
      std::this_thread::sleep_for(kPollEvery);
    }
    disturbed_.store(false);  // whoever enters does so before telling
  } while (inside_.load() != 0);
  return Alone::kYes;
}

bool PoolCallers::EndAlone() {
  const bool disturbed = disturbed_.load();
  const std::lock_guard lock(mutex_);
  alone_.store(nullptr);
  changed_.notify_all();
  return !disturbed;
}

}  // namespace culet
