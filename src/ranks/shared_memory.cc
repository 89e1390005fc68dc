// JoinRanks: a communicator of processes over memory that all of them map.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "culet/printable.h"
#include "culet/ranks.h"
#include "ranks/meeting.h"

namespace culet {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
constexpr int kMostRanks = 1024;

enum class Call : std::uint32_t { kNone = 0, kAllReduce, kAllGather, kBroadcast, kBarrier };
const char* ToString(Call call) {
  constexpr const char* kNames[] = {"nothing", "all-reduce", "all-gather", "broadcast", "barrier"};
  return call <= Call::kBarrier ? kNames[static_cast<int>(call)] : "another call";
}

// What a rank puts beside its bytes.
struct Tag {
  std::uint32_t call = 0, root = 0;
  std::uint64_t bytes = 0;  // of the whole call
};

struct alignas(64) RankState {
  Word epoch;    // the exchange whose bytes are there
  Word present;  // 1: its lock is held; 2: it left
  std::uint64_t process;
  std::atomic<std::uint64_t> progress;
  Tag tags[2];  // by the exchange's parity
};

struct alignas(64) Header {
  Word failed;  // 0, 1: being written, 2
  std::uint32_t code;
  char sentence[1016];
};

long Futex(Word* word, int what, std::uint32_t value, const timespec* limit) {
  return syscall(SYS_futex, word, what, value, limit, nullptr, 0);
}

// Threads of one process may be ranks of a test: they live as long as each other.
std::uint64_t ThisProcess() {
  static const std::uint64_t token = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32 | random()) | 1;
  }();
  // A forked child is another one.
  return token ^ static_cast<std::uint64_t>(getpid()) << 1;
}

class SharedMemoryRanks final : public Communicator {
 public:
  explicit SharedMemoryRanks(RankOptions options) : options_(std::move(options)) {}
  ~SharedMemoryRanks() override {
    if (memory_ == nullptr) return;
    State(rank()).present.store(2, std::memory_order_release);
    Wake(rank());
    munmap(memory_, bytes_);
  }
  SharedMemoryRanks(const SharedMemoryRanks&) = delete;
  SharedMemoryRanks& operator=(const SharedMemoryRanks&) = delete;

  Status Join() {
    const auto ranks = static_cast<std::size_t>(options_.size);
    const std::size_t page = 4096;
    slots_at_ = (sizeof(Header) + ranks * sizeof(RankState) + page - 1) / page * page;
    bytes_ = slots_at_ + ranks * 2 * kSlotBytes;
    auto met = Meet(options_, bytes_, [&](int memory) { return Take(memory); });
    if (!met) {
      return memory_ != nullptr ? Fail(met.status().code(), met.status().message()) : met.status();
    }
    met_ = *std::move(met);
    return Barrier();
  }

  int rank() const noexcept override { return options_.rank; }
  int size() const noexcept override { return options_.size; }
  const RankOptions& options() const noexcept override { return options_; }

  void SetWait(double seconds) noexcept override { wait_seconds_ = seconds; }
  void SetProgress(std::uint64_t steps) noexcept override {
    State(rank()).progress.store(steps, std::memory_order_relaxed);
  }

  Status Check(bool late) override {
    CULET_RETURN_IF_ERROR(Failed());
    for (int r = 0; r < size(); ++r) {
      const bool left = State(r).present.load(std::memory_order_acquire) == 2;
      if (left || Died(r)) return Fail(StatusCode::kFailedPrecondition, Gone(r));
    }
    if (!late) return {};
    int last = rank();
    for (int r = 0; r < size(); ++r) {
      if (State(r).progress < State(last).progress) last = r;
    }
    return Fail(StatusCode::kFailedPrecondition,
                last == rank() ? fmt::format("an exchange did not end within {} s on rank {}",
                                             wait_seconds_.load(), rank())
                               : Late(last, fmt::format("step {}", State(last).progress.load())));
  }

  Status AllReduce(std::span<const float> x, float* sum) override {
    constexpr std::size_t kPiece = kSlotBytes / sizeof(float);
    for (std::size_t first = 0; first < x.size(); first += kPiece) {
      const std::size_t count = std::min(kPiece, x.size() - first);
      CULET_RETURN_IF_ERROR(Exchange({static_cast<std::uint32_t>(Call::kAllReduce), 0, x.size()},
                                     x.data() + first, count * sizeof(float)));
      float* const to = sum + first;
      std::copy_n(reinterpret_cast<const float*>(Slot(0)), count, to);
      for (int r = 1; r < size(); ++r) {
        const float* const from = reinterpret_cast<const float*>(Slot(r));
        for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
      }
    }
    return {};
  }

  Status AllGather(const void* part, std::span<const std::size_t> bytes, void* all) override {
    const std::size_t most = *std::max_element(bytes.begin(), bytes.end());
    const std::size_t own = bytes[static_cast<std::size_t>(rank())];
    std::uint64_t total = 0;
    for (const std::size_t each : bytes) total += each;
    for (std::size_t first = 0; first < most; first += kSlotBytes) {
      const auto piece = [&](std::size_t of) {
        return std::min(kSlotBytes, of - std::min(of, first));
      };
      CULET_RETURN_IF_ERROR(Exchange({static_cast<std::uint32_t>(Call::kAllGather), 0, total},
                                     static_cast<const std::byte*>(part) + std::min(first, own),
                                     piece(own)));
      std::byte* to = static_cast<std::byte*>(all) + first;
      for (int r = 0; r < size(); ++r) {
        const std::size_t of = bytes[static_cast<std::size_t>(r)];
        if (piece(of) > 0) std::memcpy(to, Slot(r), piece(of));
        to += of;
      }
    }
    return {};
  }

  Status Broadcast(void* data, std::size_t bytes, int root) override {
    const Tag tag{static_cast<std::uint32_t>(Call::kBroadcast), static_cast<std::uint32_t>(root),
                  bytes};
    for (std::size_t first = 0; first < bytes; first += kSlotBytes) {
      const std::size_t count = std::min(kSlotBytes, bytes - first);
      std::byte* const at = static_cast<std::byte*>(data) + first;
      CULET_RETURN_IF_ERROR(Exchange(tag, at, rank() == root ? count : 0));
      if (rank() != root) std::memcpy(at, Slot(root), count);
    }
    return {};
  }

  Status Barrier() override {
    return Exchange({static_cast<std::uint32_t>(Call::kBarrier), 0, 0}, nullptr, 0);
  }

  void Abort(const std::string& reason) noexcept override {
    static_cast<void>(Fail(StatusCode::kFailedPrecondition,
                           fmt::format("rank {} gave up: {}", rank(), Printable(reason))));
  }

  Status Tell(std::span<const std::byte> message) override {
    const std::uint64_t bytes = message.size();
    for (int r = 1; r < size(); ++r) {
      const int fd = met_.others[static_cast<std::size_t>(r)].get();
      Status sent = SendAll(fd, &bytes, sizeof bytes);
      if (sent.ok()) sent = SendAll(fd, message.data(), message.size());
      if (sent.ok()) continue;
      return Fail(StatusCode::kFailedPrecondition, Gone(r));
    }
    return {};
  }

  Result<std::vector<std::byte>> Hear() override {
    std::uint64_t bytes = 0;
    std::vector<std::byte> message;
    Status got = ReceiveAll(met_.others.front().get(), &bytes, sizeof bytes);
    if (got.ok()) {
      message.resize(bytes);
      got = ReceiveAll(met_.others.front().get(), message.data(), bytes);
    }
    if (!got.ok()) return Status(StatusCode::kNotFound, "rank 0 left");
    return message;
  }

  // Rank 0 hands them round: sockets lead to it alone.
  Result<std::vector<int>> ShareFile(int file) override {
    std::vector<OwnedFd> files(static_cast<std::size_t>(size()));
    const auto send = [&](int to, int fd, int what) -> Status {
      char none = 0;
      const Status sent = SendWithFile(fd, &none, sizeof none, what);
      return sent.ok() ? sent : Fail(StatusCode::kFailedPrecondition, Gone(to));
    };
    const auto receive = [&](int from, int fd, int of) -> Status {
      char none = 0;
      auto got = ReceiveWithFile(fd, &none, sizeof none, wait_seconds_);
      if (!got || got->get() < 0) {
        return Fail(StatusCode::kFailedPrecondition, Late(from, "the exchange of files"));
      }
      files[static_cast<std::size_t>(of)] = *std::move(got);
      return {};
    };
    if (rank() == 0) {
      const auto of = [&](int r) { return met_.others[static_cast<std::size_t>(r)].get(); };
      for (int r = 1; r < size(); ++r) CULET_RETURN_IF_ERROR(receive(r, of(r), r));
      for (int to = 1; to < size(); ++to) {
        for (int r = 0; r < size(); ++r) {
          if (r == to) continue;
          const int what = r == 0 ? file : files[static_cast<std::size_t>(r)].get();
          CULET_RETURN_IF_ERROR(send(to, of(to), what));
        }
      }
    } else {
      const int fd = met_.others.front().get();
      CULET_RETURN_IF_ERROR(send(0, fd, file));
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) CULET_RETURN_IF_ERROR(receive(0, fd, r));
      }
    }
    std::vector<int> all;
    for (OwnedFd& each : files) all.push_back(each.release());
    return all;
  }

 private:
  Header& Head() const noexcept { return *reinterpret_cast<Header*>(memory_); }
  RankState& State(int r) const noexcept {
    return reinterpret_cast<RankState*>(memory_ + sizeof(Header))[r];
  }
  // Rank r's bytes of the current exchange.
  std::byte* Slot(int r) const noexcept {
    return memory_ + slots_at_ + (static_cast<std::size_t>(r) * 2 + (epoch_ & 1)) * kSlotBytes;
  }
  void Wake(int r) const noexcept { Futex(&State(r).epoch, FUTEX_WAKE, INT_MAX, nullptr); }

  std::string Gone(int r) const {
    const bool left = State(r).present.load(std::memory_order_acquire) == 2;
    return fmt::format("rank {} {}; see its own message, and start all ranks again", r,
                       left ? "left" : "died");
  }

  std::string Late(int r, const std::string& what) const {
    return fmt::format(
        "rank {} did not come to {} within {} s; it hangs or is too slow: start all "
        "ranks again, with a longer CULET_RANK_WAIT if need be",
        r, what, wait_seconds_.load());
  }

  // Maps the memory, and shows in it that this rank lives.
  Status Take(int memory) {
    fd_ = memory;
    void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (mapped == MAP_FAILED) {
      return Status(StatusCode::kIo, fmt::format("mmap failed: {}", std::strerror(errno)));
    }
    memory_ = static_cast<std::byte*>(mapped);
    // The kernel gives the lock back when the process ends, however it ends.
    flock lock = LockOf(rank());
    if (fcntl(memory, F_SETLK, &lock) != 0) {
      return Status(StatusCode::kIo, fmt::format("fcntl failed: {}", std::strerror(errno)));
    }
    RankState& own = State(rank());
    own.process = ThisProcess();
    own.present.store(1, std::memory_order_release);
    return {};
  }

  static flock LockOf(int r) {
    flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = r;
    lock.l_len = 1;
    return lock;
  }

  // The first failure is that of all.
  Status Fail(StatusCode code, const std::string& sentence) noexcept {
    Header& head = Head();
    std::uint32_t none = 0;
    if (head.failed.compare_exchange_strong(none, 1)) {
      head.code = static_cast<std::uint32_t>(code);
      const std::size_t bytes = std::min(sentence.size(), sizeof head.sentence - 1);
      std::memcpy(head.sentence, sentence.data(), bytes);
      head.failed.store(2, std::memory_order_release);
      for (int r = 0; r < size(); ++r) Wake(r);
    }
    // Another rank may have been first, and still write its sentence; it may die at that.
    const auto end = Clock::now() + std::chrono::seconds(1);
    while (head.failed.load(std::memory_order_acquire) != 2 && Clock::now() < end) {
      std::this_thread::yield();
    }
    const Status failed = Failed();
    return failed.ok() ? Status(code, sentence) : failed;
  }
  Status Failed() const {
    const Header& head = Head();
    if (head.failed.load(std::memory_order_acquire) != 2) return {};
    return Status(static_cast<StatusCode>(head.code), head.sentence);
  }

  bool Died(int r) const {
    const RankState& state = State(r);
    if (state.present.load(std::memory_order_acquire) != 1 || state.process == ThisProcess()) {
      return false;
    }
    flock lock = LockOf(r);
    return fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }

  // Shows all ranks these bytes, and waits for theirs. Two places by turns suffice: a rank writes
  // one again after it has seen all ranks' next exchange, which they begin when they have read
  // this.
  Status Exchange(const Tag& tag, const void* bytes, std::size_t count) {
    if (size() == 1) return ++epoch_, Keep(bytes, count), Status();
    CULET_RETURN_IF_ERROR(Failed());
    ++epoch_;
    Keep(bytes, count);
    RankState& own = State(rank());
    own.tags[epoch_ & 1] = tag;
    own.epoch.store(epoch_, std::memory_order_release);
    Wake(rank());
    for (int r = 0; r < size(); ++r) {
      CULET_RETURN_IF_ERROR(WaitFor(r, tag));
      const Tag& theirs = State(r).tags[epoch_ & 1];
      if (theirs.call == tag.call && theirs.root == tag.root && theirs.bytes == tag.bytes) continue;
      return Fail(StatusCode::kFailedPrecondition,
                  fmt::format("rank {} is in {} of {}, rank {} in {} of {}; all must make the same "
                              "calls",
                              r, ToString(static_cast<Call>(theirs.call)), theirs.bytes, rank(),
                              ToString(static_cast<Call>(tag.call)), tag.bytes));
    }
    return {};
  }

  void Keep(const void* bytes, std::size_t count) const noexcept {
    if (count > 0) std::memcpy(Slot(rank()), bytes, count);
  }

  bool IsThere(std::uint32_t epoch) const noexcept {
    return static_cast<std::int32_t>(epoch - epoch_) >= 0;
  }

  Status WaitFor(int r, const Tag& tag) {
    Word& word = State(r).epoch;
    // Processors for all ranks: the others are in the same kernel, or nearly.
    const int spins = static_cast<int>(std::thread::hardware_concurrency()) >= size() ? 2000 : 20;
    for (int i = 0; i < spins; ++i) {
      if (IsThere(word.load(std::memory_order_acquire))) return {};
      if (i % 16 == 15) std::this_thread::yield();
    }
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(wait_seconds_.load()));
    for (;;) {
      const std::uint32_t now = word.load(std::memory_order_acquire);
      if (IsThere(now)) return {};
      CULET_RETURN_IF_ERROR(Failed());
      const bool left = State(r).present.load(std::memory_order_acquire) == 2;
      if ((left || Died(r)) && !IsThere(word.load(std::memory_order_acquire))) {
        return Fail(StatusCode::kFailedPrecondition, Gone(r));
      }
      if (Clock::now() > end) {
        return Fail(StatusCode::kFailedPrecondition,
                    Late(r, fmt::format("{} {}", ToString(static_cast<Call>(tag.call)), epoch_)));
      }
      const timespec limit{0, 10'000'000};
      Futex(&word, FUTEX_WAIT, now, &limit);
    }
  }

  RankOptions options_;
  std::atomic<double> wait_seconds_ = options_.wait_seconds;
  Met met_;
  int fd_ = -1;  // met_.memory
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0, slots_at_ = 0;
  std::uint32_t epoch_ = 0;
};

}  // namespace

Result<std::unique_ptr<Communicator>> JoinRanks(const RankOptions& options) {
  if (options.size < 1 || options.size > kMostRanks || options.rank < 0 ||
      options.rank >= options.size) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("rank is {} and size {}; a size is 1 to {}, ranks from 0 to size - 1",
                              options.rank, options.size, kMostRanks));
  }
  if (options.meeting.empty() && options.size > 1) {
    return Status(StatusCode::kInvalidArgument,
                  "meeting is empty; give a name that these ranks share");
  }
  auto ranks = std::make_unique<SharedMemoryRanks>(options);
  if (options.size == 1 && options.meeting.empty()) {
    // Nobody else: a name that nobody knows.
    RankOptions alone = options;
    alone.meeting = fmt::format("alone-{}-{}", getpid(), static_cast<void*>(ranks.get()));
    ranks = std::make_unique<SharedMemoryRanks>(alone);
  }
  CULET_RETURN_IF_ERROR(ranks->Join());
  return std::unique_ptr<Communicator>(std::move(ranks));
}

}  // namespace culet
