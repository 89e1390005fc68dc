#include "progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "culet/printable.h"

namespace culet::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int kBarWidth = 24;

int TerminalWidth() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// A terminal that went away is no reason to stop.
void Write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { Clear(); }

void Progress::Update(double share, const std::string& text) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < kRedraw) return;
  last_ = now;
  share = std::clamp(share, 0.0, 1.0);
  const int filled = static_cast<int>(share * kBarWidth);
  std::string line = fmt::format("[{:#<{}}{:.<{}}] {:3.0f} %  {}", "", filled, "",
                                 kBarWidth - filled, share * 100, Printable(text));
  // A wrapped line could not be erased; the last column wraps on some terminals.
  line.resize(std::min(line.size(), static_cast<std::size_t>(TerminalWidth() - 1)));
  Write(fmt::format("\r{}\033[K", line));
  drawn_ = true;
}

void Progress::Clear() {
  if (!drawn_) return;
  Write("\r\033[K");
  drawn_ = false;
}

}  // namespace culet::cli
