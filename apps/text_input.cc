#include "text_input.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace culet::cli {
namespace {

Status CannotRead(const std::string& path, const std::string& why) {
  return Status(StatusCode::kIo, fmt::format("{} cannot be read: {}", path, why));
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// Whether what is read from there ends some time.
bool HasAnEnd(int fd, const struct stat& info) {
  return S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) ||
         isatty(fd) == 1;
}

}  // namespace

Result<std::string> ReadTextInput(const std::string& path, std::size_t max_bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)};
  struct stat info {};
  if (file.fd < 0 || fstat(file.fd, &info) != 0) return CannotRead(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return CannotRead(path, std::strerror(EISDIR));
  if (!HasAnEnd(file.fd, info)) {
    return CannotRead(path, "it is a device without an end; name a file or a pipe");
  }
  std::string text;
  for (;;) {
    const std::size_t had = text.size();
    text.resize(had + kChunk);
    const ssize_t got = read(file.fd, text.data() + had, kChunk);
    const int cause = errno;
    text.resize(had + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got == 0) return text;
    if (got < 0 && cause != EINTR) return CannotRead(path, std::strerror(cause));
    if (text.size() > max_bytes) {
      return CannotRead(
          path, fmt::format("it is longer than {} bytes; give fewer prompts at once", max_bytes));
    }
  }
}

}  // namespace culet::cli
