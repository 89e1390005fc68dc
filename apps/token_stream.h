// Prints a model's output on stdout as it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "culet/status.h"

namespace culet::cli {

/// The bytes before an incomplete UTF-8 sequence at the text's end, or all bytes. Bytes that are
/// not UTF-8 count as complete.
std::size_t CompleteUtf8(std::string_view text) noexcept;

/// The continuations of several prompts, one a line: that of the first at once, a later one's when
/// those before it have ended.
class TokenStream {
 public:
  /// Texts, of which each byte is a token, with their prompts; or, without prompts, numbers.
  static TokenStream OfTexts(std::vector<std::string> prompts);
  static TokenStream OfNumbers(std::size_t sequences);

  /// `is_end`: the token ends the sequence, so that a text leaves it out.
  /// Errors: IO when stdout cannot be written.
  Status Add(std::size_t sequence, std::int32_t token, bool is_end = false);
  Status End(std::size_t sequence);
  /// Ends all sequences that have not ended.
  Status EndAll();

 private:
  struct Line {
    std::string pending;  // not on stdout yet
    bool empty = true;    // no token yet
    bool ended = false;
  };
  TokenStream(bool texts, std::vector<Line> lines);
  Status Write();

  bool texts_;
  std::vector<Line> lines_;
  std::size_t current_ = 0;  // the line that is being written
};

}  // namespace culet::cli
