// Barriers, and copies and stores that arrive at them.
#include "async.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "async_state.h"
#include "running_threads.h"

namespace culet::host_cuda {
namespace {

// In the 64 bits of an mbarrier.
struct Phase {
  std::uint64_t parity : 1, mark : 7, count : 14, pending : 14;
  std::int64_t bytes : 28;  // expected, which have not come
};
static_assert(sizeof(Phase) == 8);
constexpr std::uint64_t kMark = 0x35;

constexpr int kNamed = 16;
struct Named {
  int threads = 0, arrived = 0;
  unsigned generation = 0;
  bool any = false, result = false;
};

struct Async {
  std::size_t count = 0;
  std::vector<AsyncThread> threads;
  std::vector<std::array<Named, kNamed>> named;  // of each block
  // The cluster's barrier: threads that run and have come, and those that have ended.
  std::size_t arrived = 0, ended = 0;
  unsigned generation = 0;
};
thread_local Async async;

bool IsInitialised(const Phase& phase) {
  if (phase.mark == kMark) return true;
  Fail("uses an mbarrier that was not initialised");
  return false;
}

// Changes a barrier, whose phase completes when nothing is pending.
template <class Change>
void ChangePhase(std::uint64_t* barrier, Change change) {
  auto phase = std::bit_cast<Phase>(*barrier);
  if (!IsInitialised(phase)) return;
  change(phase);
  constexpr std::int64_t kMostBytes = (1 << 20) - 1;
  if (phase.bytes > kMostBytes || phase.bytes < -kMostBytes) {
    Fail(fmt::format("an mbarrier expects {} bytes", std::int64_t{phase.bytes}));
    return;
  }
  if (phase.pending == 0 && phase.bytes == 0) {
    phase.parity ^= 1;
    phase.pending = phase.count;
  }
  *barrier = std::bit_cast<std::uint64_t>(phase);
}

void TakeArrival(Phase& phase) {
  if (phase.pending == 0) {
    Fail("an mbarrier has more arrivals than it counts");
    return;
  }
  --phase.pending;
}

void CompleteCluster() {
  if (async.arrived + async.ended < async.count || async.arrived == 0) return;
  async.arrived = 0;
  ++async.generation;
}

std::uint64_t* OfRank(const std::uint64_t* barrier, std::uint32_t rank) {
  const auto offset = reinterpret_cast<const char*>(barrier) - DynamicShared();
  return reinterpret_cast<std::uint64_t*>(SharedOfCluster(static_cast<int>(rank)) + offset);
}

constexpr int kRankBits = 24;  // the place of a rank, plus one, in an address

char* InCluster(std::uint32_t address) {
  const std::uint32_t rank = address >> kRankBits;
  if (rank == 0) {
    Fail("a store to the cluster has no address of mapa");
    return nullptr;
  }
  return SharedOfCluster(static_cast<int>(rank - 1)) + (address & ((1u << kRankBits) - 1));
}

}  // namespace

AsyncThread& RunningAsync() {
  // When first needed: most kernels have nothing asynchronous.
  if (async.threads.empty()) async.threads.resize(async.count);
  return async.threads[RunningThread()];
}

void BeginAsync(std::size_t threads) {
  if (!async.threads.empty() || !async.named.empty()) async = {};
  async.count = threads;
  async.arrived = async.ended = 0;
}

void EndThread() {
  ++async.ended;
  if (async.threads.empty()) return;
  AsyncThread& thread = RunningAsync();
  if (!thread.stores.empty()) Fail("a thread ends before its bulk stores have read shared memory");
  if (!thread.groups.empty() || !thread.open.empty()) Fail("a thread ends before its products");
  if (thread.arrived && thread.generation == async.generation) --async.arrived;
  CompleteCluster();
}

void EndAsync() {
  if (async.threads.empty()) return;
  for (std::size_t first = 0; first + 128 <= ThreadsOfBlock(); first += 128) {
    for (int block = 0; block < BlocksOfCluster(); ++block) {
      const AsyncThread* const group =
          &async.threads[static_cast<std::size_t>(block) * ThreadsOfBlock() + first];
      for (std::size_t i = 32; i < 128; i += 32) {
        if (group[i].issued != group[0].issued) {
          Fail("the warps of a warpgroup multiply different operands");
        }
      }
    }
  }
}

void CompleteBytes(std::uint64_t* barrier, std::uint32_t bytes) {
  ChangePhase(barrier, [&](Phase& phase) { phase.bytes -= static_cast<std::int64_t>(bytes); });
}

void InitBarrier(std::uint64_t* barrier, std::uint32_t arrivals) {
  DriftWarps();
  Phase phase{};
  phase.mark = kMark;
  phase.count = phase.pending = arrivals;
  *barrier = std::bit_cast<std::uint64_t>(phase);
}

void Arrive(std::uint64_t* barrier) {
  Soon([barrier] { ChangePhase(barrier, TakeArrival); });
}

void ArriveExpecting(std::uint64_t* barrier, std::uint32_t bytes) {
  ChangePhase(barrier, [&](Phase& phase) {
    phase.bytes += static_cast<std::int64_t>(bytes);
    TakeArrival(phase);
  });
}

void ArriveAt(std::uint64_t* barrier, std::uint32_t rank) { Arrive(OfRank(barrier, rank)); }

bool HasCompleted(std::uint64_t* barrier, std::uint32_t parity) {
  const auto phase = std::bit_cast<Phase>(*barrier);
  return IsInitialised(phase) && phase.parity != parity;
}

void AwaitPhase(std::uint64_t* barrier, std::uint32_t parity) {
  if (HasCompleted(barrier, parity)) return;
  WaitUntil([=] { return std::bit_cast<Phase>(*barrier).parity != parity; });
}

void ArriveAfterCopies(std::uint64_t* barrier) {
  auto transfer = std::make_shared<Transfer>();
  transfer->work = [barrier, copies = TakeCopies()] {
    copies();
    ChangePhase(barrier, TakeArrival);
  };
  RunningAsync().arrivals.push_back(transfer);
  Later(std::move(transfer));
}

void AwaitArrivals() {
  for (const auto& transfer : std::exchange(RunningAsync().arrivals, {})) transfer->Happen();
}

bool MeetNamed(int id, int threads, bool flag, bool waits) {
  if (id < 1 || id >= kNamed || threads < 32 || threads % 32 != 0 ||
      static_cast<std::size_t>(threads) > ThreadsOfBlock()) {
    Fail(fmt::format("named barrier {} of {} threads", id, threads));
  }
  if (async.named.empty()) async.named.resize(static_cast<std::size_t>(BlocksOfCluster()));
  Named& named =
      async.named[static_cast<std::size_t>(RankInCluster())][static_cast<std::size_t>(id)];
  if (named.arrived == 0) named.threads = threads;
  if (named.threads != threads) {
    Fail(fmt::format("named barrier {} of {} threads, and of {}", id, named.threads, threads));
  }
  const unsigned generation = named.generation;
  named.any |= flag;
  if (++named.arrived == threads) {
    named.result = std::exchange(named.any, false);
    named.arrived = 0;
    ++named.generation;
  }
  if (!waits) return false;
  WaitUntil([&named, generation] { return named.generation != generation; });
  return named.result;
}

void ArriveInCluster() {
  AsyncThread& thread = RunningAsync();
  if (thread.arrived) Fail("a thread comes twice to its cluster's barrier");
  thread.arrived = true;
  thread.generation = async.generation;
  ++async.arrived;
  CompleteCluster();
}

void AwaitArrivedCluster() {
  AsyncThread& thread = RunningAsync();
  if (!thread.arrived) Fail("a thread waits for its cluster before it came to its barrier");
  WaitUntil([&thread] { return async.generation != thread.generation; });
  thread.arrived = false;
}

std::uint32_t AddressInCluster(std::uint32_t address, std::uint32_t rank) {
  if (static_cast<int>(rank) >= BlocksOfCluster()) {
    Fail(fmt::format("block {} of a cluster of {}", rank, BlocksOfCluster()));
  }
  return address | (rank + 1) << kRankBits;
}

void StoreToCluster(std::uint32_t to, std::span<const float> values, std::uint32_t barrier) {
  if (to >> kRankBits != barrier >> kRankBits) Fail("a store and its barrier in different blocks");
  if (to % (values.size() * sizeof(float)) != 0) Fail("a store to the cluster is not aligned");
  auto transfer = std::make_shared<Transfer>();
  transfer->work = [=, copy = std::vector<float>(values.begin(), values.end())] {
    char* const place = InCluster(to);
    if (place == nullptr) return;
    const std::size_t bytes = copy.size() * sizeof(float);
    std::memcpy(place, copy.data(), bytes);
    CompleteBytes(reinterpret_cast<std::uint64_t*>(InCluster(barrier)),
                  static_cast<std::uint32_t>(bytes));
  };
  Later(std::move(transfer));
}

}  // namespace culet::host_cuda
