// SafetensorsWriter.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <utility>

#include "base/caught.h"
#include "base/file_io.h"
#include "culet/safetensors.h"

namespace culet {
namespace {

constexpr std::size_t kHeaderAlignment = 8;

const char* NameOf(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat32:
      return "F32";
    case DataType::kFloat16:
      return "F16";
    case DataType::kBfloat16:
      return "BF16";
    case DataType::kFloat8_e4m3:
      return "F8_E4M3";
    case DataType::kFloat8_ue8m0:
      return "F8_E8M0";
    case DataType::kInt32:
      return "I32";
    case DataType::kInt8:
      return "I8";
    case DataType::kInt4:
    case DataType::kUint4:
    case DataType::kFloat4_e2m1:
    case DataType::kNull:
      break;
  }
  return nullptr;
}

// What an element is called, and its bytes; null for what the format has no name for.
struct Element {
  const char* name;
  std::int64_t bytes;
};
Element ElementOf(const SafetensorsEntry& entry) noexcept {
  if (entry.dtype.empty()) {
    return {NameOf(entry.type), static_cast<std::int64_t>(SizeOf(entry.type))};
  }
  for (const Element& each : {Element{"I64", 8}, Element{"U8", 1}}) {
    if (entry.dtype == each.name) return each;
  }
  return {nullptr, 0};
}

Result<std::int64_t> BytesOf(const SafetensorsEntry& entry) {
  std::int64_t bytes = ElementOf(entry).bytes;
  for (const std::int64_t size : entry.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("tensor {} has the dimension {}, or more than 2^63 bytes", entry.name, size));
    }
  }
  return bytes;
}

// The file's beginning: the header's length and text.
Result<std::string> Header(const std::vector<SafetensorsEntry>& entries) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::int64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    const auto [dtype, element_bytes] = ElementOf(entry);
    if (dtype == nullptr || header.contains(entry.name) || entry.name == "__metadata__") {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("tensor {} has type {}, or its name is taken", entry.name,
                                entry.dtype.empty() ? ToString(entry.type) : entry.dtype));
    }
    const auto bytes = BytesOf(entry);
    if (!bytes) return bytes.status();
    if (*bytes != 0 && entry.data == nullptr && !entry.make) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("tensor {} has neither data nor make", entry.name));
    }
    if (offset % element_bytes != 0) {
      // The format knows no gaps.
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("tensor {} would lie at byte {}; write wider types first",
                                entry.name, offset));
    }
    header[entry.name] = {
        {"dtype", dtype}, {"shape", entry.shape}, {"data_offsets", {offset, offset + *bytes}}};
    offset += *bytes;
  }
  std::string text = header.dump(-1, ' ', /*ensure_ascii=*/false,
                                 nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) {
    length[static_cast<std::size_t>(i)] = static_cast<char>(text.size() >> (8 * i));
  }
  return length + text;
}

}  // namespace

struct SafetensorsWriter::Impl {
  std::string path;       // as it was given
  std::string target;     // what it finally names
  std::string temporary;  // beside the target; empty when the target is written in place
  std::function<bool()> stop;
  int fd = -1;

  ~Impl() {
    if (fd >= 0) close(fd);
    if (!temporary.empty()) unlink(temporary.c_str());
  }
  Status Error() const {
    return Status(StatusCode::kIo,
                  fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
  }
  // A pipe whose reader is slow says EAGAIN.
  Status Append(std::string_view bytes) const {
    constexpr int kAskEveryMs = 100;
    while (!WriteAll(fd, bytes)) {
      if (errno != EAGAIN) return Error();
      if (stop && !CaughtNo([&] { return !stop(); })) {
        return Status(StatusCode::kFailedPrecondition,
                      fmt::format("{} was not written: stopped while its reader had not taken all "
                                  "of it",
                                  path));
      }
      pollfd ready{fd, POLLOUT, 0};
      static_cast<void>(poll(&ready, 1, kAskEveryMs));
    }
    return {};
  }
  // The new file takes the old one's place and permissions.
  Status Finish(bool keep_permissions, unsigned mode) {
    const bool temporary_file = !temporary.empty();
    if (temporary_file && keep_permissions && fchmod(fd, mode) != 0) return Error();
    if (temporary_file && fsync(fd) != 0) return Error();
    if (close(std::exchange(fd, -1)) != 0) return Error();
    if (temporary_file && std::rename(temporary.c_str(), target.c_str()) != 0) return Error();
    temporary.clear();
    return {};
  }
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;

Result<SafetensorsWriter> SafetensorsWriter::Open(const std::string& path,
                                                  std::function<bool()> stop) {
  namespace fs = std::filesystem;
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->stop = std::move(stop);
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  impl->target = error ? path : resolved.string();
  struct stat old {};
  const bool exists = stat(impl->target.c_str(), &old) == 0;
  if (!exists) {  // a link may name a file that is to be made
    auto target = FollowLinks(path);
    if (!target) return target.status();
    impl->target = *std::move(target);
  }
  if (exists && access(impl->target.c_str(), W_OK) != 0) return impl->Error();
  if (exists && !S_ISREG(old.st_mode)) {
    // A pipe that nobody reads would block in open without O_NONBLOCK.
    impl->fd = OpenFile(impl->target, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (impl->fd < 0 && errno == ENXIO && S_ISFIFO(old.st_mode)) {
      return Status(StatusCode::kIo,
                    fmt::format("{} cannot be written: it is a pipe that nobody reads; start its "
                                "reader first, or name a file",
                                path));
    }
  } else {
    impl->temporary = fmt::format("{}.tmp-{}-{}", impl->target, getpid(), std::random_device()());
    impl->fd = OpenFile(impl->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC);
    if (impl->fd < 0) impl->temporary.clear();
  }
  if (impl->fd < 0) return impl->Error();
  return SafetensorsWriter(std::move(impl));
}

Status SafetensorsWriter::Write(const std::vector<SafetensorsEntry>& entries) {
  const auto header = Header(entries);
  if (!header) return header.status();
  CULET_RETURN_IF_ERROR(impl_->Append(*header));
  for (const SafetensorsEntry& entry : entries) {
    const auto bytes = static_cast<std::size_t>(*BytesOf(entry));
    if (entry.data != nullptr || bytes == 0) {
      CULET_RETURN_IF_ERROR(impl_->Append({static_cast<const char*>(entry.data), bytes}));
      continue;
    }
    std::vector<std::byte> made(bytes);
    CULET_RETURN_IF_ERROR(entry.make(made));
    CULET_RETURN_IF_ERROR(impl_->Append({reinterpret_cast<const char*>(made.data()), bytes}));
  }
  struct stat old {};
  const bool exists = stat(impl_->target.c_str(), &old) == 0;
  return impl_->Finish(exists, old.st_mode & 07777);
}

Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries) {
  auto writer = SafetensorsWriter::Open(path);
  return writer ? writer->Write(entries) : writer.status();
}

}  // namespace culet
