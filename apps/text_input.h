// Files that a user names for the command line to read, prompts for example.
#pragma once

#include <cstddef>
#include <string>

#include "culet/status.h"

namespace culet::cli {

/// All of a regular file, a pipe (`<(...)`, a FIFO, whose writer it waits for) or a terminal.
/// Errors: IO for what cannot be read, is something else, as /dev/zero, or is longer.
Result<std::string> ReadTextInput(const std::string& path, std::size_t max_bytes);

}  // namespace culet::cli
