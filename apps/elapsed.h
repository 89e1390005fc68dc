// The time since a moment.
#pragma once

#include <chrono>

namespace culet::cli {

using Clock = std::chrono::steady_clock;

inline double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

}  // namespace culet::cli
