// Ctrl-C ends a long command after the measurement at hand, with everything finished kept.
#pragma once

namespace culet::cli {

/// While one is alive SIGINT and SIGTERM are noted instead of obeyed; a second one is obeyed.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// The signal that was noted, or 0.
int InterruptSignal() noexcept;

/// What a shell expects of a command that ended on the noted signal.
int InterruptExitCode() noexcept;

}  // namespace culet::cli
