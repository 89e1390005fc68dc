// Lets a caller end long work: asked while the work goes on.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "base/caught.h"
#include "culet/status.h"

namespace culet {

class Stop {
 public:
  /// `ask` may be null: work to the end.
  explicit Stop(std::function<bool()> ask) : ask_(std::move(ask)) {}

  /// Whether to end now; stays true. Only `thread` 0, the caller's own, asks: the function need not
  /// be safe on other threads. One that throws counts as yes.
  bool operator()(int thread = 0) noexcept {
    if (thread != 0 || !ask_ || stopped_.load(std::memory_order_relaxed)) return stopped();
    if (CaughtNo([&] { return !ask_(); })) return false;
    stopped_.store(true, std::memory_order_relaxed);
    return true;
  }
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

  /// RESOURCE_EXHAUSTED once stopped.
  Status status() const {
    return stopped() ? Status(StatusCode::kResourceExhausted,
                              "ended before the inputs and their reference were complete")
                     : Status();
  }

 private:
  std::function<bool()> ask_;
  std::atomic<bool> stopped_{false};
};

}  // namespace culet
