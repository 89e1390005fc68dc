#include "model/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace culet {
namespace {

Status CannotRead(const std::string& path, int error) {
  if (error == ENOENT) {
    return Status(StatusCode::kNotFound, fmt::format("{} does not exist", path));
  }
  return Status(StatusCode::kIo, fmt::format("{} cannot be read: {}", path, std::strerror(error)));
}

// A descriptor that closes itself; the mapping does not need it.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // A pipe would block in open without O_NONBLOCK.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status {};
  if (file.fd < 0 || fstat(file.fd, &status) != 0) return CannotRead(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return Status(StatusCode::kIo,
                  fmt::format("{} cannot be read: it is not a regular file", path));
  }
  MappedFile mapped;
  if (status.st_size == 0) return mapped;
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return CannotRead(path, errno);
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.bytes_ = bytes;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace culet
