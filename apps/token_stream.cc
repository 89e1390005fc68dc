#include "token_stream.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

namespace culet::cli {

std::size_t CompleteUtf8(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t size = text.size();
  for (std::size_t back = 1; back <= std::min<std::size_t>(size, 3); ++back) {
    const unsigned char lead = byte(size - back);
    if ((lead & 0xc0) == 0x80) continue;  // of a sequence that began before
    const std::size_t length = lead >= 0xf8 || lead < 0xc0 ? 1
                               : lead >= 0xf0              ? 4
                               : lead >= 0xe0              ? 3
                                                           : 2;
    return length > back ? size - back : size;
  }
  return size;
}

TokenStream::TokenStream(bool texts, std::vector<Line> lines)
    : texts_(texts), lines_(std::move(lines)) {}

TokenStream TokenStream::OfTexts(std::vector<std::string> prompts) {
  std::vector<Line> lines;
  for (std::string& prompt : prompts) lines.push_back({.pending = std::move(prompt)});
  return {true, std::move(lines)};
}

TokenStream TokenStream::OfNumbers(std::size_t sequences) {
  return {false, std::vector<Line>(sequences)};
}

Status TokenStream::Add(std::size_t sequence, std::int32_t token, bool is_end) {
  constexpr std::int32_t kBytes = 256;
  Line& line = lines_[sequence];
  if (!texts_) {
    line.pending += fmt::format("{}{}", line.empty ? "" : ",", token);
  } else if (is_end) {
    return {};
  } else if (token < kBytes) {
    line.pending.push_back(static_cast<char>(token));
  } else {
    line.pending += fmt::format("<{}>", token);
  }
  line.empty = false;
  return Write();
}

Status TokenStream::End(std::size_t sequence) {
  lines_[sequence].ended = true;
  return Write();
}

Status TokenStream::EndAll() {
  for (Line& line : lines_) line.ended = true;
  return Write();
}

Status TokenStream::Write() {
  for (; current_ < lines_.size(); ++current_) {
    Line& line = lines_[current_];
    if (line.ended) line.pending.push_back('\n');
    const std::size_t bytes = line.ended ? line.pending.size()
                              : texts_   ? CompleteUtf8(line.pending)
                                         : line.pending.size();
    std::fwrite(line.pending.data(), 1, bytes, stdout);
    line.pending.erase(0, bytes);
    if (!line.ended) break;
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return Status(StatusCode::kIo, "stdout could not be written");
}

}  // namespace culet::cli
