// A file mapped read-only.
#pragma once

#include <cstddef>
#include <string>

#include "culet/status.h"

namespace culet {

class MappedFile {
 public:
  MappedFile() noexcept = default;
  /// Errors: NOT_FOUND; IO when it cannot be read or is no regular file.
  static Result<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::byte* data() const noexcept { return data_; }  ///< null when the file is empty
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace culet
