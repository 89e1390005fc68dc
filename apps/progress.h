// A progress bar on stderr. Silent unless stderr is a terminal.
#pragma once

#include <chrono>
#include <string>

namespace culet::cli {

class Progress {
 public:
  Progress();
  /// Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `share` (0 to 1) and a text. Redraws at most ten times a second.
  void Update(double share, const std::string& text);

  /// Removes the bar, so that a line can be printed; the next Update draws it again.
  void Clear();

 private:
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace culet::cli
