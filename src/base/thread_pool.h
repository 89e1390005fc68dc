// The threads that CPU kernels share: fork-join, the caller works too, workers spin briefly before
// they sleep because decode products follow each other within microseconds.
#pragma once

#include <functional>
#include <memory>

namespace culet {

class ThreadPool {
 public:
  /// `threads` counts the caller: 1 means no workers.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept;

  /// Calls body(task, thread) for each task in [0, tasks), thread in [0, threads()); returns when
  /// all are done. Tasks are handed out one by one, in order, to whichever thread is free.
  /// `body` must not throw. A call while another caller uses the pool, and a call from within
  /// a body, runs all tasks on the calling thread as thread 0.
  void Run(int tasks, const std::function<void(int task, int thread)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The process's pool, with HostThreads() threads; made at first use, and made anew in a child
/// after fork.
ThreadPool& HostPool();

}  // namespace culet
