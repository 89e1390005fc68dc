// Messages to the function of SetLog. Where none listens, a message costs one load.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <utility>

#include "culet/log.h"

namespace culet {

/// The least level that somebody listens to; above all levels where nobody does.
inline std::atomic<std::uint8_t> least_logged{0xff};

inline bool Logs(LogLevel level) noexcept {
  return static_cast<std::uint8_t>(level) >= least_logged.load(std::memory_order_relaxed);
}

/// Requires: no lock is held, because the function may call the library.
void LogMessage(LogLevel level, const std::string& message) noexcept;

template <class... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!Logs(level)) return;
  try {
    LogMessage(level, fmt::format(format, std::forward<Args>(args)...));
  } catch (...) {  // no memory for a message is no reason to fail
  }
}

}  // namespace culet
