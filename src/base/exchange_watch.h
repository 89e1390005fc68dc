// What watches exchanges that go on by themselves on a device, and ends those that wait for a rank
// that is gone or late.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "culet/ranks.h"
#include "culet/status.h"

namespace culet {

/// The waits of RankExchange. After a failure all of its calls fail alike.
class ExchangeWatch {
 public:
  struct Hooks {
    std::function<Status()> look;  ///< what is wrong with exchanges under way, without waiting
    /// Ends them; called once, on a thread of its own, and may wait till their graphs are gone.
    std::function<void()> end;
  };
  /// `device`: current for the hooks. Requires: ranks that outlive it. It is the first to go of
  /// what the hooks use.
  ExchangeWatch(Communicator& ranks, int device, Hooks hooks);
  ~ExchangeWatch();
  ExchangeWatch(const ExchangeWatch&) = delete;
  ExchangeWatch& operator=(const ExchangeWatch&) = delete;

  /// call(), a Status, before all that comes of a failure; or the failure.
  template <class Call>
  Status Guarded(const Call& call) {
    const std::lock_guard lock(mutex_);
    return failure_.ok() ? call() : failure_;
  }
  Status status();
  void BeginWait();
  Status EndWait();

 private:
  void Watch();
  void Fail(const Status& trouble);

  Communicator& ranks_;
  int device_;
  Hooks hooks_;
  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  bool over_ = false, waiting_ = false, ended_ = false;
  std::chrono::steady_clock::time_point since_;
  std::uint64_t waits_ = 0;
  Status failure_;
  std::thread thread_;
};

}  // namespace culet
