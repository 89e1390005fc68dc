#include "base/exchange_watch.h"

#include "base/device_scope.h"

namespace culet {

ExchangeWatch::ExchangeWatch(Communicator& ranks, int device, Hooks hooks)
    : ranks_(ranks), device_(device), hooks_(std::move(hooks)), thread_([this] { Watch(); }) {}

ExchangeWatch::~ExchangeWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Status ExchangeWatch::status() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ExchangeWatch::BeginWait() {
  const std::lock_guard lock(mutex_);
  waiting_ = true;
  since_ = std::chrono::steady_clock::now();
}

Status ExchangeWatch::EndWait() {
  const std::lock_guard lock(mutex_);
  waiting_ = false;
  ranks_.SetProgress(++waits_);
  // What has just ended may have given up by itself.
  if (failure_.ok()) {
    const DeviceScope scope(device_);
    if (const Status trouble = hooks_.look(); !trouble.ok()) Fail(trouble);
  }
  return failure_;
}

// A rank that died is named before what came of it.
void ExchangeWatch::Fail(const Status& trouble) {
  const Status of_ranks = ranks_.Check(false);
  failure_ = of_ranks.ok() ? trouble : of_ranks;
  if (of_ranks.ok()) ranks_.Abort(trouble.message());
  wake_.notify_one();
}

// Kernels wait for ever, or long, for a rank that is gone.
void ExchangeWatch::Watch() {
  const DeviceScope scope(device_);
  constexpr std::chrono::milliseconds kEvery(50);
  std::unique_lock lock(mutex_);
  const auto is_to_end = [&] { return !failure_.ok() && !ended_; };
  while (!over_ || is_to_end()) {
    wake_.wait_for(lock, kEvery, [&] { return over_ || is_to_end(); });
    if (waiting_ && failure_.ok()) {
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - since_;
      Status trouble = ranks_.Check(waited.count() > ranks_.options().wait_seconds);
      if (trouble.ok()) trouble = hooks_.look();
      if (!trouble.ok()) Fail(trouble);
    }
    if (!is_to_end()) continue;
    ended_ = true;
    // Without the lock: the end may wait for graphs, whose owner wants the failure first.
    lock.unlock();
    hooks_.end();
    lock.lock();
  }
}

}  // namespace culet
