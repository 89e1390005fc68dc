// Whole small text files.
#pragma once

#include <cstddef>
#include <string>

#include "culet/status.h"

namespace culet {

/// The content of a regular file of at most `max_bytes`. Errors: NOT_FOUND; IO when it cannot be
/// read, is no regular file or is larger.
Result<std::string> ReadTextFile(const std::string& path, std::size_t max_bytes);

}  // namespace culet
