// The threads that CPU kernels share: fork-join, the caller works too, workers spin briefly before
// they sleep because decode products follow each other within microseconds.
#pragma once

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
  /// has fewer.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept;

  /// Calls body(task, thread) for each task in [0, tasks), thread in [0, threads()), on at most
  /// `max_threads` threads (0: all); returns when all are done. Tasks are handed out one by one, in
  /// order, to whichever thread is free. `body` must not throw. A call while another caller uses
  /// the pool, and a call from within a body, runs all tasks on the calling thread as thread 0.
  void Run(int tasks, TaskRef body, int max_threads = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The process's pool, with HostThreads() threads; made at first use, made anew after
/// SetHostThreads and in a child after fork.
ThreadPool& HostPool();

}  // namespace culet
