#include "base/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <climits>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/pool_callers.h"
#include "base/spin_wait.h"
#include "culet/device.h"

namespace culet {
namespace {

// A thread that runs a body, of whichever pool, runs nested calls inline.
thread_local bool in_body = false;

// Signals belong to the application's own threads, but for the faults of the thread itself: those
// end the process without its handler when they are blocked.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &old_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }

 private:
  sigset_t old_;
};

void RunInline(int tasks, TaskRef body) {
  for (int task = 0; task < tasks; ++task) body(task, 0);
}

// What one caller wants done. `gate` says who may touch the other fields: workers enter while it is
// open, the caller closes it when no task is left and waits for those inside. A worker that wakes
// late finds it closed and never delays the caller.
struct Job {
  static constexpr std::uint32_t kOpen = 1;
  static constexpr std::uint32_t kInside = 2;  // added by each worker inside

  // Written while the gate is closed and nobody is inside.
  const TaskRef* body = nullptr;
  int max_threads = 0;
  std::atomic<int> tasks{0};

  std::atomic<bool> failed{false};
  std::exception_ptr error;  // what the first body that failed threw

  alignas(64) std::atomic<int> next{0};  // the first task that nobody has taken
  alignas(64) std::atomic<std::uint32_t> gate{0};

  bool Enter() noexcept {
    // A look from outside, at a job that may have changed: whoever enters looks again.
    if (next.load(std::memory_order_relaxed) >= tasks.load(std::memory_order_relaxed)) return false;
    std::uint32_t seen = gate.load(std::memory_order_relaxed);
    while ((seen & kOpen) != 0) {
      if (gate.compare_exchange_weak(seen, seen + kInside, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void Leave() noexcept {
    // The last one out after closing wakes the caller.
    if (gate.fetch_sub(kInside, std::memory_order_release) == kInside) gate.notify_one();
  }

  void Open(const TaskRef& work, int count, int threads) noexcept {
    body = &work;
    max_threads = threads;
    tasks.store(count, std::memory_order_relaxed);
    next.store(0, std::memory_order_relaxed);
    gate.store(kOpen, std::memory_order_release);
  }

  // Of a body; no more tasks begin.
  void Fail() noexcept {
    if (!failed.exchange(true)) error = std::current_exception();
    next.store(tasks.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

  void Close() noexcept {
    std::uint32_t inside = gate.fetch_sub(kOpen, std::memory_order_acq_rel) - kOpen;
    while (inside != 0) {
      WaitWhileEqual(gate, inside);
      inside = gate.load(std::memory_order_acquire);
    }
  }
};

}  // namespace

// Every caller works on its own job, as thread 0. The workers go where tasks are left, spread over
// the open jobs. Callers and workers together are no more than `threads`: each caller beside the
// first takes the place of one worker, the last one first, which is then parked.
struct ThreadPool::Impl {
  static constexpr int kNobody = INT_MAX;

  Impl(int wanted, std::chrono::milliseconds patience)
      : callers(patience), threads(wanted), slots(std::clamp(wanted, 1, 64)) {}

  PoolCallers callers;

  const int threads;
  const int slots;  // with as many callers there is no place for workers
  const std::unique_ptr<Job[]> jobs{new Job[static_cast<std::size_t>(slots)]};
  alignas(64) std::atomic<std::uint64_t> taken{0};  // jobs that belong to a caller, a bit each
  std::atomic<std::uint64_t> open{0};               // those that workers should look at

  alignas(64) std::atomic<std::uint32_t> epoch{0};  // grows with each job; workers sleep on it
  std::atomic<std::uint32_t> places{0};             // parked workers sleep on it
  std::atomic<int> first_parked{kNobody};           // at or below the least parked worker's number
  std::atomic<bool> stop{false};

  std::vector<std::thread> workers;

  bool HasPlace(int thread) const noexcept {
    return thread <= threads - std::max(1, callers.count());
  }

  // Returns when the worker may run again.
  void Park(int thread) noexcept {
    const std::uint32_t seen = places.load();
    int first = first_parked.load();
    while (thread < first && !first_parked.compare_exchange_weak(first, thread)) {
    }
    // A caller that leaves from now on sees the number.
    if (!HasPlace(thread) && !stop.load()) places.wait(seen);
  }

  void WakeParked() noexcept {
    const int first = first_parked.load();
    if (first == kNobody || !HasPlace(first)) return;
    first_parked.store(kNobody);
    places.fetch_add(1);
    places.notify_all();
  }

  // Whether a task was there for the thread.
  bool Work(Job& job, int thread) noexcept {
    bool worked = false;
    in_body = true;
    while (thread == 0 || HasPlace(thread)) {
      const int task = job.next.fetch_add(1, std::memory_order_relaxed);
      if (task >= job.tasks.load(std::memory_order_relaxed)) break;
      try {
        (*job.body)(task, thread);
      } catch (...) {
        job.Fail();
      }
      worked = true;
    }
    in_body = false;
    return worked;
  }

  // Works on one of the open jobs; whether a task was there.
  bool Help(int thread) noexcept {
    const std::uint64_t all = open.load(std::memory_order_acquire);
    const int count = std::popcount(all);
    for (int i = 0; i < count; ++i) {
      std::uint64_t rest = all;
      for (int skip = (thread + i) % count; skip > 0; --skip) rest &= rest - 1;
      Job& job = jobs[static_cast<std::size_t>(std::countr_zero(rest))];
      if (!job.Enter()) continue;
      const bool worked = thread < job.max_threads && Work(job, thread);
      job.Leave();
      if (worked) return true;
    }
    return false;
  }

  void WorkerLoop(int thread) noexcept {
    std::uint32_t seen = 0;
    for (;;) {
      WaitWhileEqual(epoch, seen);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      while (Help(thread)) {
      }
      while (!HasPlace(thread) && !stop.load()) {
        Park(thread);
        while (Help(thread)) {
        }
      }
    }
  }

  void WakeWorkers() noexcept {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  void End() {
    stop.store(true);
    places.fetch_add(1);
    places.notify_all();
    WakeWorkers();
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }

  // A free job's number, or -1.
  int TakeJob() noexcept {
    std::uint64_t seen = taken.load(std::memory_order_relaxed);
    for (;;) {
      const int free = std::countr_one(seen);
      if (free >= slots) return -1;
      if (taken.compare_exchange_weak(seen, seen | std::uint64_t{1} << free,
                                      std::memory_order_acquire)) {
        return free;
      }
    }
  }

  void Run(int tasks, const TaskRef& body, int usable) {
    const int number = TakeJob();
    if (number < 0) return RunInline(tasks, body);
    const std::uint64_t bit = std::uint64_t{1} << number;
    Job& job = jobs[static_cast<std::size_t>(number)];
    job.Open(body, tasks, usable);
    open.fetch_or(bit);  // before the look at who has a place
    WakeWorkers();
    WakeParked();
    Work(job, 0);
    open.fetch_and(~bit, std::memory_order_relaxed);
    job.Close();
    std::exception_ptr error;
    if (job.failed.exchange(false)) error = std::exchange(job.error, nullptr);
    taken.fetch_and(~bit, std::memory_order_release);
    if (error != nullptr) std::rethrow_exception(std::move(error));
  }
};

ThreadPool::ThreadPool(int threads, std::chrono::milliseconds patience)
    : impl_(std::make_unique<Impl>(threads, patience)) {
  const BlockedSignals blocked;
  impl_->workers.reserve(static_cast<std::size_t>(std::max(threads - 1, 0)));
  for (int thread = 1; thread < threads; ++thread) {
    try {
      impl_->workers.emplace_back([impl = impl_.get(), thread] { impl->WorkerLoop(thread); });
    } catch (const std::system_error&) {
      break;
    } catch (...) {  // no memory, which may pass: a pool is for the process's life
      impl_->End();
      throw;
    }
  }
}

ThreadPool::~ThreadPool() { impl_->End(); }

int ThreadPool::threads() const noexcept { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::Run(int tasks, TaskRef body, int max_threads) {
  if (in_body) return RunInline(tasks, body);
  struct Call {
    Impl& impl;
    explicit Call(Impl& of) : impl(of) { impl.callers.Enter(); }
    ~Call() {
      impl.callers.Leave();
      if (impl.open.load() != 0) impl.WakeParked();
    }
  } const call(*impl_);
  const int usable = max_threads > 0 ? std::min(max_threads, threads()) : threads();
  if (tasks <= 1 || usable == 1) {
    RunInline(tasks, body);
  } else {
    impl_->Run(tasks, body, usable);
  }
}

MeasuringAlone::MeasuringAlone(ThreadPool& pool, const Options& options) : pool_(pool) {
  using Alone = PoolCallers::Alone;
  const Alone alone = pool.impl_->callers.BeginAlone(options.patience, options.give_up);
  begun_ = alone != Alone::kGaveUp;
  alone_ = alone == Alone::kYes;
}

MeasuringAlone::~MeasuringAlone() { static_cast<void>(End()); }

bool MeasuringAlone::End() {
  if (!alone_) return begun_;
  alone_ = false;
  return pool_.impl_->callers.EndAlone();
}

namespace {

// The pool of the process. Never destroyed: a product may run in another object's static
// destructor.
struct HostPoolEntry {
  ThreadPool pool;
  int requested;  // HostThreads() when it was made; the pool may have got fewer
  HostPoolEntry* next = nullptr;
};

constinit std::mutex host_pool_mutex;
HostPoolEntry* host_pool = nullptr;  // guarded by host_pool_mutex, as the next three
HostPoolEntry* left_behind =
    nullptr;                        // by fork: their workers do not exist here, nobody joins them
bool host_pool_is_parents = false;  // this process was forked since the pool was made
bool fork_handlers_registered = false;

// fork copies the calling thread alone, so the mutex is held across it, and the child makes a pool
// of its own.
bool RegisterForkHandlers() {
  return pthread_atfork([] { host_pool_mutex.lock(); }, [] { host_pool_mutex.unlock(); },
                        [] {
                          host_pool_is_parents = host_pool != nullptr;
                          host_pool_mutex.unlock();
                        }) == 0;
}

}  // namespace

ThreadPool& HostPool() {
  const int wanted = HostThreads();
  const std::lock_guard lock(host_pool_mutex);
  if (!fork_handlers_registered) fork_handlers_registered = RegisterForkHandlers();
  if (!fork_handlers_registered) throw std::bad_alloc();
  if (host_pool_is_parents) {
    host_pool->next = left_behind;
    left_behind = std::exchange(host_pool, nullptr);
    host_pool_is_parents = false;
  }
  if (host_pool == nullptr || host_pool->requested != wanted) {
    delete std::exchange(host_pool, nullptr);
    host_pool = new HostPoolEntry{ThreadPool(wanted), wanted};
  }
  return host_pool->pool;
}

}  // namespace culet
