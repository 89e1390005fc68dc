// Who is using a thread pool: any number of callers, or one who measures.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace culet {

class PoolCallers {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `patience`: how long callers wait for one who measures, unless that one asks for another.
  explicit PoolCallers(Milliseconds patience) : patience_(patience), patience_now_(patience) {}

  /// Every call of the pool, whether it uses the workers or not, lies between these. Enter waits
  /// while another thread measures, and disturbs the measurement after the patience: a kernel under
  /// measurement may itself wait for a thread that calls in. Calls within calls of one thread are
  /// one call.
  void Enter();
  void Leave();

  /// Threads between Enter and Leave; one that measures does not count.
  int count() const noexcept { return static_cast<int>(inside_.load()); }

  enum class Alone { kYes, kWithin, kGaveUp };
  /// No other thread is between Enter and Leave until EndAlone, which is called after kYes only.
  /// kWithin: the calling thread is itself inside, or measures already. kGaveUp: the others did not
  /// leave until `give_up` (may be null), which is asked while they are waited for, said true, or
  /// for a minute. `patience`: of those who come meanwhile, if above that of the constructor.
  Alone BeginAlone(Milliseconds patience, const std::function<bool()>& give_up);
  /// Whether no other thread entered meanwhile.
  bool EndAlone();

 private:
  const Milliseconds patience_;
  Milliseconds patience_now_;  // guarded by mutex_
  alignas(64) std::atomic<std::uint32_t> inside_{0};
  alignas(64) std::atomic<const void*> alone_{nullptr};  // the thread that measures
  std::atomic<bool> disturbed_{false};
  std::mutex mutex_;  // held to change alone_ and waiting_
  int waiting_ = 0;   // callers, for alone_ to end
  std::condition_variable changed_;
};

}  // namespace culet
