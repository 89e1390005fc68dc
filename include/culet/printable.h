// Text of files as messages and tables show it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace culet {

/// `text` without anything that steers a terminal: control characters (those of Unicode, too, and
/// what turns the direction of writing) and bytes that are not UTF-8 are written as escapes, \x1b
/// or \u202e; a backslash stays. What is longer than `most_bytes` ends in "...".
std::string Printable(std::string_view text, std::size_t most_bytes = std::string_view::npos);

}  // namespace culet
