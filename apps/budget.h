// The seconds that --budget grants, shared evenly among the problems that are still to come.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace culet::cli {

class Budget {
 public:
  /// 0 seconds: no limit. The clock starts now.
  explicit Budget(double seconds) : seconds_(seconds), start_(Clock::now()) {}

  bool limited() const { return seconds_ > 0; }
  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool exhausted() const { return limited() && elapsed_s() >= seconds_; }

  /// What is left; 0 without a limit. Requires: not exhausted().
  double LeftS() const { return ShareOf(1); }

  /// What one of `problems` may take, this one included; 0 without a limit.
  /// Requires: not exhausted().
  double ShareOf(std::size_t problems) const {
    if (!limited()) return 0;
    const double left_s = std::max(seconds_ - elapsed_s(), 1e-9);
    return left_s / static_cast<double>(std::max<std::size_t>(problems, 1));
  }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_;
  Clock::time_point start_;
};

}  // namespace culet::cli
