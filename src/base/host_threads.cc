// How many threads CPU kernels use.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "base/cgroup.h"
#include "base/host_device.h"
#include "culet/device.h"

namespace culet {
namespace {

std::atomic<int> g_threads_set{0};  // 0: SetHostThreads was not called

int AffinityCpus() {
  // The kernel's mask may be wider than the default set; it refuses a short one with EINVAL.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 16); cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus),
                                                               [](cpu_set_t* s) { CPU_FREE(s); });
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    // The main thread's mask: the caller's may be pinned to one CPU by its own pool.
    if (sched_getaffinity(getpid(), bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

int DefaultThreads() {
  const int asked = ParseThreads(std::getenv("CULET_THREADS"));
  return asked > 0 ? asked : std::min(AvailableCpus(), kMaxHostThreads);
}

}  // namespace

int ParseThreads(const char* text) noexcept {
  if (text == nullptr) return 0;
  int threads = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, threads);
  return error == std::errc() && stop == end && threads >= 1 && threads <= kMaxHostThreads ? threads
                                                                                           : 0;
}

int ParseCpuQuota(std::string_view text) noexcept {
  std::int64_t quota_us = 0;
  std::int64_t period_us = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, quota_us);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return 0;
  const auto second = std::from_chars(first.ptr + 1, end, period_us);
  if (second.ec != std::errc() || quota_us <= 0 || period_us <= 0) return 0;
  return static_cast<int>(std::min<std::int64_t>((quota_us - 1) / period_us + 1, kMaxHostThreads));
}

int AvailableCpus() {
  int cpus = std::max(1, AffinityCpus());
  if (const int quota = CgroupCpus(); quota > 0) cpus = std::min(cpus, quota);
  return cpus;
}

int HostThreads() {
  const int set = g_threads_set.load(std::memory_order_relaxed);
  if (set > 0) return set;
  static const int threads = DefaultThreads();
  return threads;
}

Status SetHostThreads(int threads) {
  if (threads < 1 || threads > kMaxHostThreads) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("threads is {}; use 1 to {}", threads, kMaxHostThreads));
  }
  g_threads_set.store(threads, std::memory_order_relaxed);
  return {};
}

Status CheckHostThreads() {
  if (g_threads_set.load(std::memory_order_relaxed) > 0) return {};
  const char* text = std::getenv("CULET_THREADS");
  if (text == nullptr || ParseThreads(text) > 0) return {};
  return Status(StatusCode::kInvalidArgument,
                fmt::format("CULET_THREADS is '{}'; set it to a number from 1 to {}, or unset it",
                            text, kMaxHostThreads));
}

}  // namespace culet
