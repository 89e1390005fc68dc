// What the first that asks makes for all, without a lock.
#pragma once

#include <atomic>
#include <memory>

namespace culet {

/// What `place` points to; where it is null, what `make` (-> std::unique_ptr<T>) gives is put there,
/// the owner's to delete or to leave for the process's lifetime. Of threads that make one at once
/// the first counts. In place of a static of a function, whose guard would stay taken in a child
/// that is forked while another thread makes it.
template <class T, class Make>
T& MadeOnce(std::atomic<T*>& place, Make&& make) {
  if (T* made = place.load(std::memory_order_acquire)) return *made;
  std::unique_ptr<T> mine = make();
  T* made = nullptr;
  if (place.compare_exchange_strong(made, mine.get(), std::memory_order_acq_rel)) {
    made = mine.release();
  }
  return *made;
}

}  // namespace culet
