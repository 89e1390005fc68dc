// What the library says of its work: nothing, until somebody asks for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace culet {

enum class LogLevel : std::uint8_t {
  kOff = 0,      ///< as a threshold: nothing
  kDebug = 1,    ///< each plan with its kernel
  kInfo = 2,     ///< caches read and written, problems tuned, libraries opened
  kWarning = 3,  ///< what was left out or replaced: an unreadable cache, a kernel that gave way
};
/// "debug", "info", "warning", "off".
const char* ToString(LogLevel) noexcept;

/// Gets one sentence, without a line end. Called on the thread that did the work, by several
/// threads at once. What it throws is dropped; what it calls of culet logs nothing.
using LogFunction = std::function<void(LogLevel level, const std::string& message)>;

/// From now on messages of `least` and above go to `function`, for the whole process; null or kOff
/// ends that. Calls of an earlier function that are under way on other threads go on to their end;
/// functions are kept for the life of the process.
void SetLog(LogFunction function, LogLevel least = LogLevel::kInfo);

}  // namespace culet
