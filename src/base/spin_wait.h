// Waiting for a word to change: polling first, because most waits here are short.
#pragma once

#include <atomic>

namespace culet {

inline void CpuRelax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns once `word` differs from `old`. Polls for 20 to 50 us before it sleeps: more than lies
/// between two products of one decode step and less than a sleeping thread takes to come back.
/// Whoever changes the word must notify.
template <class T>
void WaitWhileEqual(const std::atomic<T>& word, T old) noexcept {
  constexpr int kSpins = 1000;
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    CpuRelax();
  }
  word.wait(old, std::memory_order_acquire);
}

}  // namespace culet
