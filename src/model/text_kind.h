// What stands in a file that should hold something else.
#pragma once

#include <string>
#include <string_view>

namespace culet {

/// Whether a file that begins like this is text.
bool IsText(std::string_view bytes) noexcept;

/// "; it is a Git LFS pointer: ..." or "; it is an HTML page: ...", with the way out, for the end
/// of a message; empty for anything else.
std::string ReplacedBy(std::string_view text);

}  // namespace culet
