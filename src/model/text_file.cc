#include "model/text_file.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/file_io.h"

namespace culet {

Result<std::string> ReadTextFile(const std::string& path, std::size_t max_bytes) {
  Result<std::optional<std::string>> text = ReadFile(path, max_bytes);
  if (!text.ok()) return Status(StatusCode::kIo, text.status().message());
  if (!text->has_value()) {
    return Status(StatusCode::kNotFound, fmt::format("{} does not exist", path));
  }
  return **std::move(text);
}

}  // namespace culet
