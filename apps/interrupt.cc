#include "interrupt.h"

#include <cerrno>
#include <csignal>

#include <unistd.h>

namespace culet::cli {
namespace {

volatile std::sig_atomic_t noted_signal = 0;

// A launch cannot be interrupted. If the command is still busy after a second, it says so.
void SayThatItWaits(int) {
  constexpr char kText[] = "\nculet: finishing what is under way; interrupt again to end at once\n";
  const int cause = errno;
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  errno = cause;
}

void NoteSignal(int signal) {
  noted_signal = signal;
  alarm(1);
}

void SetHandler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  // Saving files must not see interrupted calls; a second signal has its default effect.
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  SetHandler(SIGINT, NoteSignal);
  SetHandler(SIGTERM, NoteSignal);
  SetHandler(SIGALRM, SayThatItWaits);
}

InterruptGuard::~InterruptGuard() {
  alarm(0);
  SetHandler(SIGALRM, SIG_DFL);
  SetHandler(SIGINT, SIG_DFL);
  SetHandler(SIGTERM, SIG_DFL);
}

int InterruptSignal() noexcept { return noted_signal; }

int InterruptExitCode() noexcept { return 128 + noted_signal; }

}  // namespace culet::cli
