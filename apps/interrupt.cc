#include "interrupt.h"

#include <csignal>

namespace culet::cli {
namespace {

volatile std::sig_atomic_t noted_signal = 0;

void NoteSignal(int signal) { noted_signal = signal; }

void SetHandler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  // Files being saved must not see interrupted calls; the second signal meets the default.
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  SetHandler(SIGINT, NoteSignal);
  SetHandler(SIGTERM, NoteSignal);
}

InterruptGuard::~InterruptGuard() {
  SetHandler(SIGINT, SIG_DFL);
  SetHandler(SIGTERM, SIG_DFL);
}

int InterruptSignal() noexcept { return noted_signal; }

int InterruptExitCode() noexcept { return 128 + noted_signal; }

}  // namespace culet::cli
