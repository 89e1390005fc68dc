#include "base/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "culet/device.h"

namespace culet {
namespace {

// A worker polls this often before it sleeps: 20 to 50 us, more than lies between two products of
// one decode step and less than a sleeping thread takes to come back.
constexpr int kSpins = 1000;

void CpuRelax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once `word` differs from `old`: polls, then sleeps.
template <class T>
void WaitWhileEqual(const std::atomic<T>& word, T old) noexcept {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    CpuRelax();
  }
  word.wait(old, std::memory_order_acquire);
}

// A thread that runs a body, of whichever pool, runs nested calls inline.
thread_local bool in_body = false;

// Signals belong to the application's own threads.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }

 private:
  sigset_t old_;
};

void RunInline(int tasks, TaskRef body) {
  for (int task = 0; task < tasks; ++task) body(task, 0);
}

}  // namespace

// One job at a time. `gate` says who may touch the job's fields: workers enter while it is open,
// the caller closes it when no task is left and waits for those inside. A worker that wakes late
// finds it closed and never delays the caller.
struct ThreadPool::Impl {
  static constexpr std::uint32_t kOpen = 1;
  static constexpr std::uint32_t kInside = 2;  // added by each worker inside

  std::mutex caller;  // held by the one caller that uses the workers

  // The job: written while the gate is closed and nobody is inside.
  const TaskRef* body = nullptr;
  int tasks = 0;
  int max_threads = 0;

  alignas(64) std::atomic<int> next{0};  // the first task that nobody has taken
  alignas(64) std::atomic<std::uint32_t> gate{0};
  alignas(64) std::atomic<std::uint32_t> epoch{0};  // grows with each job; workers sleep on it
  std::atomic<bool> stop{false};

  std::vector<std::thread> workers;

  void Work(int thread) noexcept {
    in_body = true;
    for (;;) {
      const int task = next.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks) break;
      (*body)(task, thread);
    }
    in_body = false;
  }

  bool Enter() noexcept {
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

  void WorkerLoop(int thread) noexcept {
    std::uint32_t seen = 0;
    for (;;) {
      WaitWhileEqual(epoch, seen);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      if (!Enter()) continue;
      if (thread < max_threads) Work(thread);
      Leave();
    }
  }

  void WakeWorkers() noexcept {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  const BlockedSignals blocked;
  impl_->workers.reserve(static_cast<std::size_t>(std::max(threads - 1, 0)));
  for (int thread = 1; thread < threads; ++thread) {
    try {
      impl_->workers.emplace_back([impl = impl_.get(), thread] { impl->WorkerLoop(thread); });
    } catch (const std::system_error&) {
      break;
    }
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_relaxed);
  impl_->WakeWorkers();
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::threads() const noexcept { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::Run(int tasks, TaskRef body, int max_threads) {
  const int usable = max_threads > 0 ? std::min(max_threads, threads()) : threads();
  if (tasks <= 1 || usable == 1 || in_body) return RunInline(tasks, body);
  const std::unique_lock lock(impl_->caller, std::try_to_lock);
  if (!lock.owns_lock()) return RunInline(tasks, body);

  impl_->body = &body;
  impl_->tasks = tasks;
  impl_->max_threads = usable;
  impl_->next.store(0, std::memory_order_relaxed);
  impl_->gate.store(Impl::kOpen, std::memory_order_release);
  impl_->WakeWorkers();

  impl_->Work(0);

  std::uint32_t inside =
      impl_->gate.fetch_sub(Impl::kOpen, std::memory_order_acq_rel) - Impl::kOpen;
  while (inside != 0) {
    WaitWhileEqual(impl_->gate, inside);
    inside = impl_->gate.load(std::memory_order_acquire);
  }
}

namespace {

// The pool of the process. Never destroyed: a product may run in another object's static
// destructor.
struct HostPoolEntry {
  ThreadPool pool;
  int requested;  // HostThreads() when it was made; the pool may have got fewer
  HostPoolEntry*
      parents;  // in a child after fork: its workers do not exist here, nobody joins them
};

constinit std::mutex host_pool_mutex;
HostPoolEntry* host_pool = nullptr;  // guarded by host_pool_mutex, as the next two
bool host_pool_is_parents = false;   // this process was forked since the pool was made
bool fork_handlers_registered = false;

// fork copies the calling thread alone, so the mutex is held across it, and the child makes a pool
// of its own.
void RegisterForkHandlers() {
  pthread_atfork([] { host_pool_mutex.lock(); }, [] { host_pool_mutex.unlock(); },
                 [] {
                   host_pool_is_parents = host_pool != nullptr;
                   host_pool_mutex.unlock();
                 });
}

}  // namespace

ThreadPool& HostPool() {
  const int wanted = HostThreads();
  const std::lock_guard lock(host_pool_mutex);
  if (!fork_handlers_registered) {
    RegisterForkHandlers();
    fork_handlers_registered = true;
  }
  HostPoolEntry* parents = host_pool != nullptr ? host_pool->parents : nullptr;
  if (host_pool_is_parents) {
    parents = host_pool;
    host_pool = nullptr;
    host_pool_is_parents = false;
  }
  if (host_pool == nullptr || host_pool->requested != wanted) {
    delete host_pool;
    host_pool = new HostPoolEntry{ThreadPool(wanted), wanted, parents};
  }
  return host_pool->pool;
}

}  // namespace culet
