// How much of a file's text a message shows.
#pragma once

#include <cstddef>

namespace culet {

/// Characters of a key or a value.
inline constexpr std::size_t kShownText = 40;

}  // namespace culet
