// Ranges around launches, for a profiler. Where none was asked for, a range costs one load.
#pragma once

#include <atomic>
#include <string>

#include "culet/trace.h"

namespace culet {

/// Where ranges go.
struct TraceHooks {
  void (*push)(const char* name) noexcept;
  void (*pop)() noexcept;
};

/// Null: nobody asked.
inline std::atomic<const TraceHooks*> trace_hooks{nullptr};

/// SetTracing(true) where CULET_NVTX is 1; the environment is read once.
void TraceAsEnvironmentSays() noexcept;

class TraceRange {
 public:
  /// `name`: makes the text; called only where somebody asked.
  template <class MakeName>
  explicit TraceRange(const MakeName& name) noexcept
      : hooks_(trace_hooks.load(std::memory_order_acquire)) {
    if (hooks_ != nullptr) [[unlikely]] {
      Push(name);
    }
  }
  ~TraceRange() {
    if (hooks_ != nullptr) [[unlikely]] {
      hooks_->pop();
    }
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  template <class MakeName>
  [[gnu::noinline, gnu::cold]] void Push(const MakeName& name) noexcept {
    try {
      hooks_->push(std::string(name()).c_str());
    } catch (...) {  // no memory for the name: the pop still needs its push
      hooks_->push("");
    }
  }

  const TraceHooks* const hooks_;
};

}  // namespace culet
