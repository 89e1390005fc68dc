#include "ranks/meeting.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "culet/printable.h"

namespace culet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMagic = 0x74656c63;

// What a rank says first.
struct Hello {
  std::uint32_t magic = kMagic;
  std::int32_t rank = 0, size = 0;
  char version[32] = {};
};
// What rank 0 answers: no sentence means welcome, and the memory comes along.
struct Answer {
  std::uint32_t code = 0;
  char sentence[508] = {};
};

Status Io(const char* what) {
  return Status(StatusCode::kIo, fmt::format("{} failed: {}", what, std::strerror(errno)));
}

// Of the abstract kind, which no file stands for.
std::pair<sockaddr_un, socklen_t> AddressOf(const std::string& meeting) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : meeting) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  const std::string name = fmt::format("culet-ranks-{}-{:016x}", getuid(), hash);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

bool IsOfThisUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

double SecondsTo(Clock::time_point end) {
  return std::chrono::duration<double>(end - Clock::now()).count();
}

// The first of `others` whose other end is gone. Before all have come they say nothing more.
std::optional<int> WhoLeft(const std::vector<OwnedFd>& others) {
  for (std::size_t rank = 0; rank < others.size(); ++rank) {
    char nothing = 0;
    if (others[rank].get() < 0) continue;
    if (recv(others[rank].get(), &nothing, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
      return static_cast<int>(rank);
    }
  }
  return std::nullopt;
}

Status DiedEarly(int rank) {
  return Status(StatusCode::kFailedPrecondition,
                fmt::format("rank {} died while the ranks met; see its own message", rank));
}

// Whether there is something to read, or the other end is gone, within that time.
bool WaitToRead(int fd, double seconds) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, static_cast<int>(std::max(0.0, seconds) * 1000)) > 0;
}

void SendAnswer(int fd, StatusCode code, const std::string& sentence, int memory) {
  Answer answer;
  answer.code = static_cast<std::uint32_t>(code);
  std::memcpy(answer.sentence, sentence.data(),
              std::min(sentence.size(), sizeof answer.sentence - 1));
  // Who is gone by now is missed in the first exchange.
  static_cast<void>(SendWithFile(fd, &answer, sizeof answer, memory));
}

Result<OwnedFd> MakeMemory(std::size_t bytes) {
  OwnedFd memory(memfd_create("culet-ranks", MFD_CLOEXEC));
  if (memory.get() < 0) return Io("memfd_create");
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) return Io("ftruncate");
  return memory;
}

// Why rank 0 does not take who said this; empty: it does.
std::string WhyNot(const Hello& hello, const RankOptions& options, const Met& met) {
  if (hello.magic != kMagic) return "it is no rank of culet";
  const std::string version(hello.version, strnlen(hello.version, sizeof hello.version));
  if (version != CULET_VERSION) {
    return fmt::format("rank {} is culet {} and rank 0 is {}; start all with one", hello.rank,
                       Printable(version), CULET_VERSION);
  }
  if (hello.size != options.size || hello.rank < 1 || hello.rank >= options.size) {
    return fmt::format("rank {} of {} meets rank 0 of {}; start all with one number", hello.rank,
                       hello.size, options.size);
  }
  if (met.others[static_cast<std::size_t>(hello.rank)].get() >= 0) {
    return fmt::format("rank {} is there twice; give each process its own rank", hello.rank);
  }
  return {};
}

using Take = std::function<Status(int memory)>;

Result<Met> MeetAsFirst(const RankOptions& options, std::size_t bytes, const Take& take,
                        Clock::time_point end) {
  Met met;
  met.others.resize(static_cast<std::size_t>(options.size));
  auto memory = MakeMemory(bytes);
  if (!memory) return memory.status();
  met.memory = *std::move(memory);
  const OwnedFd door(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (door.get() < 0) return Io("socket");
  const auto [address, length] = AddressOf(options.meeting);
  if (bind(door.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno != EADDRINUSE) return Io("bind");
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("there is a rank 0 at '{}' already; give each process its own rank, "
                              "and each model its own MASTER_PORT or CULET_MEETING",
                              Printable(options.meeting)));
  }
  if (listen(door.get(), options.size + 8) != 0) return Io("listen");
  const auto send = [&](StatusCode code, const std::string& sentence, int fd) {
    for (const OwnedFd& other : met.others) {
      if (other.get() >= 0) SendAnswer(other.get(), code, sentence, fd);
    }
  };
  for (int missing = options.size - 1; missing > 0;) {
    constexpr double kLook = 0.1;  // seconds until it looks again who has died
    if (!WaitToRead(door.get(), std::min(kLook, SecondsTo(end)))) {
      Status gone = options.still_coming ? options.still_coming() : Status();
      if (const auto left = WhoLeft(met.others); gone.ok() && left) gone = DiedEarly(*left);
      if (!gone.ok()) {
        send(gone.code(), gone.message(), -1);
        return gone;
      }
      if (SecondsTo(end) > 0) continue;
      std::vector<int> ranks;
      for (int rank = 1; rank < options.size; ++rank) {
        if (met.others[static_cast<std::size_t>(rank)].get() < 0) ranks.push_back(rank);
      }
      const Status late(StatusCode::kFailedPrecondition,
                        fmt::format("rank {} did not come within {} s; see its own message, and "
                                    "start all {} ranks with one MASTER_PORT or CULET_MEETING",
                                    fmt::join(ranks, ", "), options.start_seconds, options.size));
      send(late.code(), late.message(), -1);
      return late;
    }
    OwnedFd other(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    constexpr double kHello = 5;  // seconds
    Hello hello;
    if (other.get() < 0 || !IsOfThisUser(other.get())) continue;
    if (!ReceiveAll(other.get(), &hello, sizeof hello, kHello).ok()) continue;
    if (const std::string reason = WhyNot(hello, options, met); !reason.empty()) {
      SendAnswer(other.get(), StatusCode::kInvalidArgument, reason, -1);
      if (hello.magic != kMagic) continue;
      send(StatusCode::kInvalidArgument, reason, -1);
      return Status(StatusCode::kInvalidArgument, reason);
    }
    met.others[static_cast<std::size_t>(hello.rank)] = std::move(other);
    --missing;
  }
  CULET_RETURN_IF_ERROR(take(met.memory.get()));
  send(StatusCode::kOk, "", met.memory.get());
  for (int rank = 1; rank < options.size; ++rank) {
    char taken = 0;
    constexpr double kTake = 30;  // seconds
    if (ReceiveAll(met.others[static_cast<std::size_t>(rank)].get(), &taken, 1, kTake).ok())
      continue;
    return DiedEarly(rank);
  }
  return met;
}

Result<Met> MeetFirst(const RankOptions& options, const Take& take, Clock::time_point end) {
  const auto [address, length] = AddressOf(options.meeting);
  OwnedFd first;
  for (;;) {
    first = OwnedFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (first.get() < 0) return Io("socket");
    if (connect(first.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) break;
    if (SecondsTo(end) < 0) {
      return Status(StatusCode::kFailedPrecondition,
                    fmt::format("rank 0 did not come within {} s; see its own message, and start "
                                "all {} ranks with one MASTER_PORT or CULET_MEETING",
                                options.start_seconds, options.size));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (!IsOfThisUser(first.get())) {
    return Status(StatusCode::kInvalidArgument, "another user's process has the place of rank 0");
  }
  Hello hello;
  hello.rank = options.rank;
  hello.size = options.size;
  std::memcpy(hello.version, CULET_VERSION, sizeof CULET_VERSION);
  Answer answer;
  constexpr double kAfterAll = 5;  // seconds: rank 0 waits as long, and says who is missing
  const bool said = SendAll(first.get(), &hello, sizeof hello).ok();
  auto memory = said ? ReceiveWithFile(first.get(), &answer, sizeof answer,
                                       std::max(0.0, SecondsTo(end)) + kAfterAll)
                     : Status(StatusCode::kNotFound, "the other end is gone");
  if (!memory) {
    return Status(StatusCode::kFailedPrecondition,
                  "rank 0 died or left before all ranks were there; see its own message");
  }
  Met met;
  met.memory = *std::move(memory);
  answer.sentence[sizeof answer.sentence - 1] = 0;
  if (answer.code != 0) {
    return Status(static_cast<StatusCode>(answer.code), Printable(answer.sentence));
  }
  if (met.memory.get() < 0) return Status(StatusCode::kIo, "rank 0 sent no memory");
  CULET_RETURN_IF_ERROR(take(met.memory.get()));
  static_cast<void>(SendAll(first.get(), "+", 1));  // a rank 0 that is gone is missed later
  met.others.push_back(std::move(first));
  return met;
}

}  // namespace

void OwnedFd::Close() noexcept {
  if (fd_ >= 0) close(fd_);
}

Result<Met> Meet(const RankOptions& options, std::size_t bytes, const Take& take) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options.start_seconds));
  return options.rank == 0 ? MeetAsFirst(options, bytes, take, end) : MeetFirst(options, take, end);
}

Status SendWithFile(int fd, const void* data, std::size_t bytes, int file) {
  iovec piece{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  if (sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes)) return {};
  return Status(StatusCode::kNotFound, "the other end is gone");
}

Result<OwnedFd> ReceiveWithFile(int fd, void* data, std::size_t bytes, double seconds) {
  iovec piece{data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (!WaitToRead(fd, seconds) ||
      recvmsg(fd, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(bytes)) {
    return Status(StatusCode::kNotFound, "nothing came");
  }
  OwnedFd file;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof received);
    file = OwnedFd(received);
  }
  return file;
}

Status SendAll(int fd, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return Status(StatusCode::kNotFound, "the other end is gone");
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return {};
}

Status ReceiveAll(int fd, void* data, std::size_t bytes, double seconds) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (seconds > 0 && !WaitToRead(fd, seconds)) {
      return Status(StatusCode::kNotFound, "nothing came");
    }
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Status(StatusCode::kNotFound, "the other end is gone");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace culet
