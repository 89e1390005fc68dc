// The time that one tuning may take: its budget from the call on, and its caller's wish to end it.
#pragma once

#include <chrono>
#include <functional>
#include <limits>

#include "base/caught.h"
#include "culet/gemm.h"

namespace culet {

class TimeLimit {
 public:
  /// `options` must outlive it, and its clock must not throw.
  explicit TimeLimit(const TuneOptions& options) : options_(options), start_s_(Now()) {}

  bool limited() const noexcept { return options_.tuner.budget_s != 0; }

  /// Seconds left: below 0 when the budget is spent, or was no number; infinite without one.
  double LeftS() const {
    if (!limited()) return std::numeric_limits<double>::infinity();
    const double left_s = options_.tuner.budget_s - (Now() - start_s_);
    return left_s > 0 ? left_s : -1.0;
  }

  /// Whether the caller wants the end. A question that throws is an answer: yes.
  bool Stopped() const noexcept {
    return options_.stop && !CaughtNo([&] { return !options_.stop(); });
  }

  /// The same, told of the progress.
  bool Stopped(double progress, const LaunchSpec& current) const noexcept {
    return Stopped() || (options_.on_progress &&
                         !CaughtNo([&] { return options_.on_progress(progress, current); }));
  }

  /// Whether work of that length may begin.
  bool Allows(double seconds) const { return !limited() || seconds < LeftS(); }

  double Now() const {
    if (options_.tuner.clock_s) return options_.tuner.clock_s();
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  const TuneOptions& options_;
  double start_s_;
};

}  // namespace culet
