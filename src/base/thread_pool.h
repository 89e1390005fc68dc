// The threads that CPU kernels share: fork-join, the caller works too, workers spin briefly before
// they sleep because decode products follow each other within microseconds.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace culet {

/// A reference to a callable body(task, thread): two words, no allocation. Valid while the
/// callable is.
class TaskRef {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, TaskRef>>>
  TaskRef(F&& body) noexcept  // NOLINT: implicit, so that Run takes a lambda
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(body)))),
        call_([](void* object, int task, int thread) {
          (*static_cast<std::remove_reference_t<F>*>(object))(task, thread);
        }) {}

  void operator()(int task, int thread) const { call_(object_, task, thread); }

 private:
  void* object_;
  void (*call_)(void*, int, int);
};

class ThreadPool {
 public:
  /// `threads` counts the caller: 1 means no workers. Where the system refuses a thread the pool
  /// has fewer. `patience`: see MeasuringAlone.
  explicit ThreadPool(int threads,
                      std::chrono::milliseconds patience = std::chrono::milliseconds(2000));
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept;

  /// Calls body(task, thread) for each task in [0, tasks), thread in [0, threads()), on at most
  /// `max_threads` threads (0: all); returns when all are done. Tasks are handed out one by one, in
  /// order, to whichever thread is free. `body` must not wait for another caller. What a body
  /// throws is thrown here, the first of it, and no more tasks begin; bodies that wait for each
  /// other must not throw. Several callers at a time share the workers: callers and workers
  /// together are no more than threads(), and a worker that finds no task left in one call goes to
  /// another. A call from within a body runs all tasks on the calling thread as thread 0.
  void Run(int tasks, TaskRef body, int max_threads = 0);

 private:
  friend class MeasuringAlone;
  struct Impl;

  std::unique_ptr<Impl> impl_;
};

/// While it lives, Run of other threads waits, so that a time taken meanwhile is that of the
/// calling thread's work; the constructor waits for the calls that are under way. A call that
/// waited for the patience goes on all the same: what is measured might wait for it.
/// Does nothing from within a call of Run, and within another one of the same thread.
class MeasuringAlone {
 public:
  struct Options {
    std::chrono::milliseconds patience{0};  ///< of other calls, if above the pool's
    /// Asked while calls under way are waited for; true ends that, as a minute does. May be null.
    std::function<bool()> give_up = nullptr;
  };
  MeasuringAlone(ThreadPool& pool, const Options& options);
  explicit MeasuringAlone(ThreadPool& pool) : MeasuringAlone(pool, Options()) {}
  ~MeasuringAlone();
  MeasuringAlone(const MeasuringAlone&) = delete;
  MeasuringAlone& operator=(const MeasuringAlone&) = delete;

  /// False when the calls under way did not end in time; then nothing is kept out.
  bool begun() const noexcept { return begun_; }

  /// Lets the others go on. Whether none went on before.
  [[nodiscard]] bool End();

 private:
  ThreadPool& pool_;
  bool begun_;
  bool alone_;
};

/// The process's pool, with HostThreads() threads; made at first use, made anew after
/// SetHostThreads and in a child after fork.
ThreadPool& HostPool();

}  // namespace culet
