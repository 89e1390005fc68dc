#include "model/text_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace culet {

Result<std::string> ReadTextFile(const std::string& path, std::size_t max_bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return Status(StatusCode::kNotFound, fmt::format("{} does not exist", path));
  }
  // A device or pipe could block or never end.
  if (status.type() != fs::file_type::regular) {
    return Status(StatusCode::kIo,
                  fmt::format("{} cannot be read: {}", path,
                              error ? error.message() : "it is not a regular file"));
  }
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (!error && bytes > max_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} has {} bytes, more than {}", path, bytes, max_bytes));
  }
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::string text(error ? 0 : static_cast<std::size_t>(bytes), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (error || !stream) {
    return Status(StatusCode::kIo, fmt::format("{} cannot be read: {}", path,
                                               error ? error.message() : std::strerror(errno)));
  }
  return text;
}

}  // namespace culet
