#include "base/log.h"

#include <memory>

namespace culet {
namespace {

struct Sink {
  LogFunction function;
  const Sink* previous;  // keeps the earlier ones, which other threads may still be calling
};

// No lock: one that another thread held at a fork would never be given back to the child.
std::atomic<const Sink*> sink = nullptr;
thread_local bool in_function = false;

}  // namespace

const char* ToString(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kOff:
      return "off";
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
  }
  return "invalid";
}

void SetLog(LogFunction function, LogLevel least) {
  if (function == nullptr || least == LogLevel::kOff) {
    least_logged = 0xff;
    return;
  }
  auto made = std::make_unique<Sink>(Sink{std::move(function), sink.load()});
  while (!sink.compare_exchange_weak(made->previous, made.get())) {
  }
  static_cast<void>(made.release());
  least_logged = static_cast<std::uint8_t>(least);
}

void LogMessage(LogLevel level, const std::string& message) noexcept {
  const Sink* const to = sink.load(std::memory_order_acquire);
  if (to == nullptr || in_function) return;
  in_function = true;
  try {
    to->function(level, message);
  } catch (...) {
  }
  in_function = false;
}

}  // namespace culet
