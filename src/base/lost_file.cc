#include "culet/lost_file.h"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

// What runs in the handler may not allocate, lock or call stdio.
namespace culet {
namespace {

constexpr const char* kWhat =
    " got shorter while culet read it; replace a file by renaming a whole new one onto its name, "
    "instead of writing into the old one, and run again";
std::atomic<int> exit_code = 0;
std::atomic<bool> json_too = false;
std::atomic_flag said = ATOMIC_FLAG_INIT;

void Write(int fd, const char* text, std::size_t bytes) noexcept {
  while (bytes > 0) {
    const ssize_t written = write(fd, text, bytes);
    if (written <= 0) return;
    text += written;
    bytes -= static_cast<std::size_t>(written);
  }
}
void Write(int fd, const char* text) noexcept { Write(fd, text, std::strlen(text)); }

// Reads /proc/self/maps, character by character.
class Maps {
 public:
  Maps() noexcept : fd_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~Maps() {
    if (fd_ >= 0) close(fd_);
  }
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;

  // False at the end.
  bool Next(char& c) noexcept {
    if (at_ == size_) {
      const ssize_t got = fd_ >= 0 ? read(fd_, buffer_, sizeof buffer_) : 0;
      if (got <= 0) return false;
      size_ = static_cast<std::size_t>(got);
      at_ = 0;
    }
    c = buffer_[at_++];
    return true;
  }

 private:
  int fd_;
  char buffer_[1024];
  std::size_t at_ = 0, size_ = 0;
};

// The path of the mapping that holds `address`, without what could steer a terminal or end a text
// of JSON; false when there is none. A line is "begin-end perms offset device inode   path".
bool FindPath(std::uintptr_t address, char* path, std::size_t capacity) noexcept {
  Maps maps;
  std::uintptr_t ends[2] = {0, 0};
  int end = 0, field = 0;
  std::size_t length = 0;
  bool blank = false;
  for (char c = 0; maps.Next(c);) {
    if (c == '\n') {
      if (ends[0] <= address && address < ends[1]) {
        path[length] = '\0';
        return length > 0;
      }
      ends[0] = ends[1] = 0;
      end = field = 0;
      length = 0;
      blank = false;
    } else if (field == 0 && c != ' ') {
      if (c == '-') {
        end = 1;
      } else {
        const int digit = c <= '9' ? c - '0' : c - 'a' + 10;
        ends[end] = ends[end] * 16 + static_cast<std::uintptr_t>(digit);
      }
    } else if (c == ' ' && length == 0) {
      if (!blank) ++field;
      blank = true;
    } else {
      blank = false;
      if (field < 5 || length + 1 >= capacity) continue;
      const auto byte = static_cast<unsigned char>(c);
      path[length++] = byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\' ? '?' : c;
    }
  }
  return false;
}

void Explain(int, siginfo_t* info, void*) {
  // Of a file's end; anything else comes again, and meets the default.
  if (info->si_code != BUS_ADRERR) {
    signal(SIGBUS, SIG_DFL);
    return;
  }
  // Several threads read weights; the first one speaks, and ends all.
  while (said.test_and_set()) pause();
  char path[4096];
  if (!FindPath(reinterpret_cast<std::uintptr_t>(info->si_addr), path, sizeof path)) {
    std::memcpy(path, "a file", sizeof "a file");
  }
  Write(STDERR_FILENO, "culet: ");
  Write(STDERR_FILENO, path);
  Write(STDERR_FILENO, kWhat);
  Write(STDERR_FILENO, "\n");
  if (json_too) {
    Write(STDOUT_FILENO, "{\n  \"error\": {\n    \"code\": \"IO\",\n    \"message\": \"");
    Write(STDOUT_FILENO, path);
    Write(STDOUT_FILENO, kWhat);
    Write(STDOUT_FILENO, "\"\n  }\n}\n");
  }
  if (const int code = exit_code; code != 0) _exit(code);
  signal(SIGBUS, SIG_DFL);  // the read is tried again
}

}  // namespace

bool ExplainLostFiles(const LostFile& how) noexcept {
  struct sigaction known {};
  if (sigaction(SIGBUS, nullptr, &known) != 0) return false;
  const bool ours = (known.sa_flags & SA_SIGINFO) != 0 && known.sa_sigaction == Explain;
  if (!ours && ((known.sa_flags & SA_SIGINFO) != 0 || known.sa_handler != SIG_DFL)) return false;
  exit_code = how.exit_code;
  json_too = how.json;
  struct sigaction action {};
  action.sa_sigaction = Explain;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGBUS, &action, nullptr) == 0;
}

}  // namespace culet
