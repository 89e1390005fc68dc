#include "host_cuda.h"

#include <fmt/format.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "running_threads.h"

#if defined(__SANITIZE_ADDRESS__)
#define HOST_CUDA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HOST_CUDA_ASAN 1
#endif
#endif
#ifdef HOST_CUDA_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace culet::host_cuda {
namespace {

constexpr int kWarp = 32;
constexpr std::size_t kStack = std::size_t{128} << 10;
// Stacks end at different offsets: the ends of all would lie in the same sets of the CPU's cache.
constexpr std::size_t kColours = 32, kColour = 832;

enum class State { kReady, kAtBlock, kAtWarp, kAtCluster, kWaits, kFailed, kDone };

// For the compiler's own setjmp, whose jump, unlike the C library's, AddressSanitizer does not take
// for one that leaves all frames of the stack: it would forget what lies between their variables.
using Place = void* [5];

struct Fiber {
  // What every round of all threads looks at, side by side.
  State state = State::kDone;
  unsigned mask = 0;  // the lanes it waits for
  Meeting what = Meeting::kBarrier;
  int from = 0;
  std::uint64_t value = 0, received = 0;
  Work work = nullptr;
  bool flag = false, begun = false;
  uint3 index{}, block{};
  Place place;                     // where it goes on
  bool (*holds)(void*) = nullptr;  // what it waits for, and of what
  void* argument = nullptr;
  void* fake_stack = nullptr;  // AddressSanitizer's
  std::unique_ptr<std::byte[]> stack{new std::byte[kStack + kColours * kColour]};
  std::size_t stack_size = kStack;
  ucontext_t context;  // how it begins
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes, size;
    void Happen() const {
      std::memset(to, 0, size);
      if (bytes > 0) std::memcpy(to, from, bytes);
    }
  };
  std::vector<std::vector<Copy>> copies;  // groups that have not happened, the last one open
};

struct alignas(1024) Shared {
  char bytes[kMostShared];
};

std::array<std::size_t, kMostCluster> AllWritten() {
  std::array<std::size_t, kMostCluster> all;
  all.fill(kMostShared);
  return all;
}

thread_local std::size_t waited;  // threads of the grid that called WaitForPrevious
thread_local std::function<void()> on_wait;
thread_local bool before_ended;    // on_wait has been called in this launch
thread_local bool before_awaited;  // by WaitForPreviousAlone

bool EndBefore() {
  before_ended = true;
  on_wait();
  return true;
}

// The blocks of a cluster, most often one, whose fibers follow each other.
class Cluster {
 public:
  /// `indices`: of its blocks.
  std::string Run(dim3 size, std::span<const uint3> indices, std::size_t shared,
                  const std::function<void()>& body);
  // Suspends the running fiber in `state` until what it waits for has happened.
  void Wait(State state);
  // Lets the other fibers run.
  void Pause();
  Fiber& running() { return *fibers_[running_]; }
  const Fiber& running() const { return *fibers_[running_]; }
  int lane() const { return static_cast<int>(running_ % kWarp); }
  bool any() const { return running().flag; }
  char* shared() { return shared_[running_ / of_block_].bytes; }
  char* SharedOf(std::size_t rank);
  bool Coin() { return order_() % 2 != 0; }
  void Fail(std::string what);
  void AddSoon(std::function<void()> work) { soon_.push_back(std::move(work)); }
  void Add(std::shared_ptr<Transfer> transfer) { transfers_.push_back(std::move(transfer)); }
  std::size_t number() const { return running_; }
  std::size_t of_block() const { return of_block_; }
  std::size_t blocks() const { return count_ / of_block_; }
  std::size_t shared_bytes() const { return shared_bytes_; }
  void WaitAlone() { waits_[running_ / of_block_] = true; }
  void Drift();

 private:
  static void Enter();
  // Separate functions: code inlined next to setjmp or getcontext may be lost. Their calls that do
  // not return leave no frame for good, so that AddressSanitizer must not hear of them.
  [[gnu::noinline, gnu::no_sanitize_address]] void RunRound();
  [[gnu::noinline, gnu::no_sanitize_address]] void Leave();
  [[noreturn, gnu::noinline, gnu::no_sanitize_address]] void Resume(Fiber& fiber);
  [[noreturn, gnu::noinline, gnu::no_sanitize_address]] void ResumeScheduler();
  [[gnu::noinline]] static void Prepare(Fiber& fiber);
  Fiber* NextOfRound();
  void TellSwitch(void** left, const Fiber* to) const;
  bool IsAwake(std::size_t fiber) const { return pace_.empty() || awake_[fiber / kWarp]; }
  void WakeWarps();
  bool ReleaseWaiting();
  bool MoveTransfers();
  bool ReleaseWarps();
  bool ReleaseBlock();
  bool ReleaseCluster();
  std::string Stuck() const;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::size_t count_ = 0;     // of this cluster; more may be left of larger ones
  std::size_t of_block_ = 1;  // of each block
  std::size_t shared_bytes_ = 0;
  bool in_thread_ = false;
  std::vector<std::shared_ptr<Transfer>> transfers_;  // that have not happened
  std::vector<std::function<void()>> soon_;
  std::array<bool, kMostCluster> waits_{};  // a thread of the block called WaitAlone
  // One in so many rounds each warp runs, where warps drift apart: from 1 to 8.
  std::vector<unsigned> pace_;
  std::vector<bool> awake_;
  std::unique_ptr<Shared[]> shared_{new Shared[kMostCluster]};
  // Of each, bytes in front that may be anything; those behind are 0xFF.
  std::array<std::size_t, kMostCluster> written_ = AllWritten();
  std::size_t running_ = 0;
  // Threads in the order in which they run in this round, and how many have had their turn.
  std::vector<std::size_t> order_of_round_;
  std::size_t turn_ = 0;
  bool any_sleeps_ = false;  // one that is ready, of a warp that sleeps
  Place scheduler_{};        // where the scheduler goes on
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_size_ = 0;
  const std::function<void()>* body_ = nullptr;
  std::string fault_;
  bool paused_ = false;  // a fiber waits for another GPU
  std::minstd_rand order_;
};

thread_local Cluster cluster;

void Cluster::Enter() {
#ifdef HOST_CUDA_ASAN
  // The first one begins from the scheduler, others perhaps from a fiber.
  const void* stack = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &size);
  if (cluster.scheduler_stack_ == nullptr) {
    cluster.scheduler_stack_ = stack;
    cluster.scheduler_stack_size_ = size;
  }
#endif
  // A fiber serves one thread after the other, of all blocks.
  while (true) {
    (*cluster.body_)();
    EndThread();
    cluster.Wait(State::kDone);
  }
}

void Cluster::Prepare(Fiber& fiber) {
#ifdef HOST_CUDA_ASAN
  // What a launch that failed left in the middle.
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack.get(), fiber.stack_size);
#endif
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = fiber.stack_size;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &Cluster::Enter, 0);
}

// The next thread of this round that is ready; null: it is over.
Fiber* Cluster::NextOfRound() {
  while (turn_ < count_) {
    const std::size_t i = order_of_round_[turn_++];
    if (fibers_[i]->state != State::kReady) continue;
    if (IsAwake(i)) {
      running_ = i;
      return fibers_[i].get();
    }
    any_sleeps_ = true;
  }
  return nullptr;
}

// Tells AddressSanitizer that the stack changes: to a fiber's, or the scheduler's.
void Cluster::TellSwitch([[maybe_unused]] void** left, [[maybe_unused]] const Fiber* to) const {
#ifdef HOST_CUDA_ASAN
  __sanitizer_start_switch_fiber(left, to != nullptr ? to->stack.get() : scheduler_stack_,
                                 to != nullptr ? to->stack_size : scheduler_stack_size_);
#endif
}

void Cluster::Resume(Fiber& fiber) {
  threadIdx = fiber.index;
  blockIdx = fiber.block;
  if (fiber.begun) __builtin_longjmp(fiber.place, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
  std::abort();  // it does not return
}

void Cluster::ResumeScheduler() { __builtin_longjmp(scheduler_, 1); }

// Contexts begin fibers; then setjmp and longjmp switch, which, unlike swapcontext, call no
// system. Each thread switches to the next one of the round, the last one to the scheduler.
void Cluster::RunRound() {
  turn_ = 0;
  any_sleeps_ = false;
  Fiber* const first = NextOfRound();
  if (first == nullptr) return;
  in_thread_ = true;
  TellSwitch(&scheduler_fake_stack_, first);
  if (__builtin_setjmp(scheduler_) == 0) Resume(*first);
#ifdef HOST_CUDA_ASAN
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
  in_thread_ = false;
}

void Cluster::Leave() {
  Fiber& fiber = running();
  Fiber* const next = NextOfRound();
  TellSwitch(&fiber.fake_stack, next);
  if (__builtin_setjmp(fiber.place) == 0) {
    if (next == nullptr) ResumeScheduler();
    Resume(*next);
  }
#ifdef HOST_CUDA_ASAN
  __sanitizer_finish_switch_fiber(fiber.fake_stack, nullptr, nullptr);
#endif
}

void Cluster::Wait(State state) {
  running().state = state;
  Leave();
}

void Cluster::Fail(std::string what) {
  {
    std::string taken = std::move(what);  // nothing unwinds a thread that fails
    if (fault_.empty()) fault_ = std::move(taken);
  }
  if (in_thread_) Wait(State::kFailed);
}

void Cluster::Drift() {
  if (!pace_.empty()) return;
  pace_.resize((count_ + kWarp - 1) / kWarp);
  for (unsigned& pace : pace_) pace = 1u << order_() % 4;
  WakeWarps();
}

void Cluster::WakeWarps() {
  awake_.resize(pace_.size());
  for (std::size_t warp = 0; warp < pace_.size(); ++warp)
    awake_[warp] = order_() % pace_[warp] == 0;
}

// Every thread whose condition holds goes on.
bool Cluster::ReleaseWaiting() {
  bool released = false;
  for (std::size_t i = 0; i < count_; ++i) {
    Fiber& fiber = *fibers_[i];
    if (fiber.state != State::kWaits || !fiber.holds(fiber.argument)) continue;
    fiber.state = State::kReady;
    released = true;
  }
  return released;
}

// Some transfers happen, in any order.
bool Cluster::MoveTransfers() {
  const bool any = !transfers_.empty();
  std::shuffle(transfers_.begin(), transfers_.end(), order_);
  std::erase_if(transfers_, [this](const auto& transfer) {
    if (Coin()) transfer->Happen();
    return transfer->done;
  });
  return any;
}

void Cluster::Pause() {
  paused_ = true;
  Wait(State::kReady);
}

// Every warp whose waiting lanes are all there goes on.
bool Cluster::ReleaseWarps() {
  bool released = false;
  for (std::size_t first = 0; first < count_; first += kWarp) {
    const std::size_t lanes = std::min<std::size_t>(kWarp, count_ - first);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const Fiber& one = *fibers_[first + lane];
      if (one.state != State::kAtWarp) continue;
      std::array<Fiber*, kWarp> members;
      std::size_t count = 0;
      bool complete = true;
      unsigned ballot = 0;
      for (std::size_t i = 0; i < lanes; ++i) {
        if ((one.mask >> i & 1) == 0) continue;
        Fiber& other = *fibers_[first + i];
        complete &= other.state == State::kAtWarp && other.mask == one.mask &&
                    other.what == one.what && other.work == one.work;
        if (other.value != 0) ballot |= 1u << i;
        members[count++] = &other;
      }
      if (!complete || (one.mask >> lane & 1) == 0) continue;
      if (!pace_.empty() && order_() % pace_[first / kWarp] != 0) {
        released = true;  // in a later round: what a warp waits for takes its time
        continue;
      }
      if (one.what == Meeting::kWork) {
        void* pieces[kWarp] = {};
        for (std::size_t i = 0; i < lanes; ++i) {
          pieces[i] = std::bit_cast<void*>(fibers_[first + i]->value);
        }
        one.work(pieces);
        if (!fault_.empty()) return false;
      }
      const std::span<Fiber*> group(members.data(), count);
      for (Fiber* fiber : group) {
        if (fiber->what == Meeting::kBallot) fiber->received = ballot;
        if (fiber->what != Meeting::kShuffle) continue;
        if (static_cast<std::size_t>(fiber->from) >= lanes ||
            (fiber->mask >> fiber->from & 1) == 0) {
          fault_ = fmt::format("a shuffle reads lane {}, which is not in it", fiber->from);
          return false;
        }
        fiber->received = fibers_[first + static_cast<std::size_t>(fiber->from)]->value;
      }
      for (Fiber* fiber : group) fiber->state = State::kReady;
      released = true;
    }
  }
  return released;
}

// One block whose threads are all there goes on; the others of its cluster wait till it waits, too.
bool Cluster::ReleaseBlock() {
  const std::size_t blocks = count_ / of_block_, start = order_() % blocks;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t first = (start + block) % blocks * of_block_;
    bool any = false, all = true;
    for (std::size_t i = first; i < first + of_block_; ++i) {
      all &= fibers_[i]->state == State::kAtBlock;
      any |= fibers_[i]->flag;
    }
    if (!all) continue;
    for (std::size_t i = first; i < first + of_block_; ++i) {
      fibers_[i]->state = State::kReady;
      fibers_[i]->flag = any;
    }
    return true;
  }
  return false;
}

// All blocks go on, one after the other.
bool Cluster::ReleaseCluster() {
  for (std::size_t i = 0; i < count_; ++i) {
    if (fibers_[i]->state != State::kAtCluster) return false;
  }
  for (std::size_t i = 0; i < count_; ++i) fibers_[i]->state = State::kAtBlock;
  return ReleaseBlock();
}

char* Cluster::SharedOf(std::size_t rank) {
  bool runs = false;
  for (std::size_t i = rank * of_block_; i < std::min((rank + 1) * of_block_, count_); ++i) {
    runs |= fibers_[i]->state != State::kDone;
  }
  if (!runs) Fail(fmt::format("reaches shared memory of block {}, which does not run", rank));
  return shared_[std::min(rank, kMostCluster - 1)].bytes;
}

std::string Cluster::Stuck() const {
  const auto in = [&](State state) {
    return std::count_if(fibers_.begin(), fibers_.begin() + static_cast<std::ptrdiff_t>(count_),
                         [&](const auto& fiber) { return fiber->state == state; });
  };
  return fmt::format(
      "of {} threads {} wait for their block, {} for their warp, {} for their cluster, {} for "
      "barriers, {} have ended",
      count_, in(State::kAtBlock), in(State::kAtWarp), in(State::kAtCluster), in(State::kWaits),
      in(State::kDone));
}

std::string Cluster::Run(dim3 size, std::span<const uint3> indices, std::size_t shared,
                         const std::function<void()>& body) {
  of_block_ = std::size_t{size.x} * size.y * size.z;
  count_ = of_block_ * indices.size();
  for (std::size_t i = 0; shared > 0 && i < indices.size(); ++i) {
    std::memset(shared_[i].bytes, 0xFF, std::max(written_[i], shared));
    written_[i] = kMostShared;  // till its end is seen
  }
  body_ = &body;
  fault_.clear();
  shared_bytes_ = shared;
  transfers_.clear();
  soon_.clear();
  waits_.fill(false);
  pace_.clear();
  BeginAsync(count_);
  while (fibers_.size() < count_) {
    fibers_.push_back(std::make_unique<Fiber>());
    fibers_.back()->stack_size += fibers_.size() % kColours * kColour;
  }
  order_of_round_.resize(count_);
  std::iota(order_of_round_.begin(), order_of_round_.end(), 0);
  for (std::size_t i = 0; i < count_; ++i) {
    Fiber& fiber = *fibers_[i];
    const std::size_t thread = i % of_block_;
    fiber.index = {static_cast<unsigned>(thread % size.x),
                   static_cast<unsigned>(thread / size.x % size.y),
                   static_cast<unsigned>(thread / size.x / size.y)};
    fiber.block = indices[i / of_block_];
    // One that a launch that failed left in the middle begins anew.
    if (fiber.state != State::kDone) fiber.begun = false;
    fiber.state = State::kReady;
    fiber.copies.assign(1, {});
    if (fiber.begun) continue;
    Prepare(fiber);
  }
  const auto is_done = [](const auto& fiber) { return fiber->state == State::kDone; };
  while (true) {
    std::shuffle(order_of_round_.begin(), order_of_round_.end(), order_);
    if (std::exchange(paused_, false)) std::this_thread::yield();
    WakeWarps();
    RunRound();
    if (std::all_of(fibers_.begin(), fibers_.begin() + static_cast<std::ptrdiff_t>(count_),
                    is_done)) {
      break;
    }
    // What can happen before barriers of whole blocks: those are for the last threads.
    bool goes_on = fault_.empty();
    if (goes_on) {
      goes_on = !soon_.empty();
      for (const auto& work : std::exchange(soon_, {})) work();
      goes_on |= ReleaseWaiting();
      goes_on |= ReleaseWarps();
      goes_on |= MoveTransfers() || any_sleeps_;
      if (!goes_on && before_awaited && !before_ended) goes_on = EndBefore();
    }
    if (!goes_on && (!fault_.empty() || !(ReleaseBlock() || ReleaseCluster() || paused_))) {
      return fault_.empty() ? Stuck() : fault_;
    }
  }
  if (std::any_of(transfers_.begin(), transfers_.end(), [](const auto& t) { return !t->done; })) {
    Fail("ends while copies to its shared memory are under way");
  }
  EndAsync();
  for (std::size_t block = 0; block < blocks(); ++block) waited += waits_[block] ? of_block_ : 0;
  for (std::size_t i = 0; shared > 0 && i < indices.size(); ++i) {
    // All of the rest: what is laid out too far may jump over a narrow guard.
    const char* const rest = shared_[i].bytes + shared;
    const std::size_t count = kMostShared - shared;
    const bool clean = count == 0 || (rest[0] == static_cast<char>(0xFF) &&
                                      std::memcmp(rest, rest + 1, count - 1) == 0);
    if (clean)
      written_[i] = shared;
    else
      Fail(fmt::format("writes beyond its {} bytes of dynamic shared memory", shared));
  }
  return fault_;
}

}  // namespace

void BeginGrid() {
  waited = 0;
  before_ended = before_awaited = false;
}
std::string RunCluster(dim3 size, std::span<const uint3> indices, std::size_t shared,
                       const std::function<void()>& body) {
  return cluster.Run(size, indices, shared, body);
}
std::size_t ThreadsThatWaited() { return waited; }

int Lane() { return cluster.lane(); }

void Pause() { cluster.Pause(); }

bool MeetBlock(bool flag) {
  cluster.running().flag = flag;
  cluster.Wait(State::kAtBlock);
  return cluster.any();
}

std::uint64_t MeetWarp(unsigned mask, Meeting what, std::uint64_t value, int from) {
  Fiber& fiber = cluster.running();
  fiber.mask = mask;
  fiber.what = what;
  fiber.value = value;
  fiber.from = from;
  cluster.Wait(State::kAtWarp);
  return fiber.received;
}

void WaitForPrevious() {
  ++waited;
  if (on_wait == nullptr) return;
  MeetBlock(false);
  if (!std::exchange(before_ended, true)) on_wait();
}
// The kernel before ends as late as can be: threads that do not wait for it come as far as they
// can.
void WaitForPreviousAlone() {
  cluster.WaitAlone();
  if (on_wait == nullptr) return;
  before_awaited = true;
  WaitUntil([] { return before_ended; });
}
void OnWait(std::function<void()> work) { on_wait = std::move(work); }

void WorkOfWarp(void* mine, Work work) {
  cluster.running().work = work;
  MeetWarp(~0u, Meeting::kWork, std::bit_cast<std::uint64_t>(mine), 0);
  cluster.running().work = nullptr;
}

void WaitUntil(bool (*holds)(void*), void* argument) {
  if (holds(argument)) return;
  cluster.running().holds = holds;
  cluster.running().argument = argument;
  cluster.Wait(State::kWaits);
}
void Later(std::shared_ptr<Transfer> transfer) { cluster.Add(std::move(transfer)); }
void DriftWarps() { cluster.Drift(); }
void Soon(std::function<void()> work) { cluster.AddSoon(std::move(work)); }
void Fail(std::string what) { cluster.Fail(std::move(what)); }
bool Coin() { return cluster.Coin(); }
std::size_t RunningThread() { return cluster.number(); }
std::size_t ThreadsOfBlock() { return cluster.of_block(); }
int BlocksOfCluster() { return static_cast<int>(cluster.blocks()); }
int RankInCluster() { return static_cast<int>(cluster.number() / cluster.of_block()); }
std::size_t SharedBytes() { return cluster.shared_bytes(); }

void MeetCluster() { cluster.Wait(State::kAtCluster); }

char* SharedOfCluster(int rank) { return cluster.SharedOf(static_cast<std::size_t>(rank)); }

char* DynamicShared() { return cluster.shared(); }

void CopyAsync(void* to, const void* from, std::size_t bytes, std::size_t size) {
  const Fiber::Copy copy{to, from, bytes, size};
  if (cluster.Coin()) return copy.Happen();
  cluster.running().copies.back().push_back(copy);
}

std::function<void()> TakeCopies() {
  return [groups = std::exchange(cluster.running().copies, {{}})] {
    for (const auto& group : groups)
      for (const Fiber::Copy& copy : group) copy.Happen();
  };
}

void CommitCopies() { cluster.running().copies.emplace_back(); }

void AwaitCopies(int pending) {
  auto& groups = cluster.running().copies;
  while (groups.size() > static_cast<std::size_t>(pending) + 1) {
    for (const Fiber::Copy& copy : groups.front()) copy.Happen();
    groups.erase(groups.begin());
  }
}

}  // namespace culet::host_cuda
