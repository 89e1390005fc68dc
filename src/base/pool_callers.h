// Who is using a thread pool: any number of callers, or one who measures.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace culet {

class PoolCallers {
 public:
  /// `patience`: how long callers wait for one who measures.
  explicit PoolCallers(std::chrono::milliseconds patience) : patience_(patience) {}

  /// Every call of the pool, whether it uses the workers or not, lies between these. Enter waits
  /// while another thread measures, and disturbs the measurement after `patience`: a kernel under
  /// measurement may itself wait for a thread that calls in. Calls within calls of one thread are
  /// one call.
  void Enter();
  void Leave();

  /// Threads between Enter and Leave; one that measures does not count.
  int count() const noexcept { return static_cast<int>(inside_.load()); }

  /// No other thread is between Enter and Leave in between. False where the calling thread is
  /// itself, or measures already: then EndAlone must not be called.
  bool BeginAlone();
  /// Whether no other thread entered meanwhile.
  bool EndAlone();

 private:
  const std::chrono::milliseconds patience_;
  alignas(64) std::atomic<std::uint32_t> inside_{0};
  alignas(64) std::atomic<const void*> alone_{nullptr};  // the thread that measures
  std::atomic<bool> disturbed_{false};
  std::mutex mutex_;  // held to change alone_ and waiting_
  int waiting_ = 0;   // callers, for alone_ to end
  std::condition_variable changed_;
};

}  // namespace culet
