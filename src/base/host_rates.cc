// MeasureHostRates: what this machine can do at most, by two loops that do nothing else.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/host_rates.cc"
#include "base/simd_targets.h"
// foreach_target.h comes next: it includes this file once a target.
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Reads `count` floats, all but a tail of less than eight vectors, as two streams. The sums keep
// the loads alive.
float ReadAll(const float* data, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  // The hardware's own prefetcher stops at the page's end. On 2 cores of a Xeon of 2023
  // (2026-11-21) 1 KiB ahead reads 36 GB/s, 4 KiB ahead 32, nothing ahead 30; a second stream adds
  // 3 %, more add nothing.
  constexpr std::size_t kAhead = 1024 / sizeof(float);
  const std::size_t half = count / 2 / (4 * lanes) * (4 * lanes);
  const float* const low = data;
  const float* const high = data + half;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i < half; i += 2 * lanes) {
    for (std::size_t v = 0; v < 2; ++v) {
      hwy::Prefetch(low + i + v * lanes + kAhead);
      hwy::Prefetch(high + i + v * lanes + kAhead);
    }
    s0 = hn::Add(s0, hn::Load(d, low + i));
    s1 = hn::Add(s1, hn::Load(d, low + i + lanes));
    s2 = hn::Add(s2, hn::Load(d, high + i));
    s3 = hn::Add(s3, hn::Load(d, high + i + lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// `steps` of twelve independent multiply-adds: enough for two ports of latency 4, and with their
// two operands they fit AVX2's 16 registers.
float MultiplyAdd(std::size_t steps) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.5f);
  const auto b = hn::Set(d, 1.0f);
  // From unequal values: the compiler computes equal ones once.
  auto x0 = hn::Iota(d, 0.0f);
  auto x1 = hn::Add(x0, b), x2 = hn::Add(x1, b), x3 = hn::Add(x2, b), x4 = hn::Add(x3, b);
  auto x5 = hn::Add(x4, b), x6 = hn::Add(x5, b), x7 = hn::Add(x6, b), x8 = hn::Add(x7, b);
  auto x9 = hn::Add(x8, b), x10 = hn::Add(x9, b), x11 = hn::Add(x10, b);
  for (std::size_t i = 0; i < steps; ++i) {
    x0 = hn::MulAdd(x0, a, b);
    x1 = hn::MulAdd(x1, a, b);
    x2 = hn::MulAdd(x2, a, b);
    x3 = hn::MulAdd(x3, a, b);
    x4 = hn::MulAdd(x4, a, b);
    x5 = hn::MulAdd(x5, a, b);
    x6 = hn::MulAdd(x6, a, b);
    x7 = hn::MulAdd(x7, a, b);
    x8 = hn::MulAdd(x8, a, b);
    x9 = hn::MulAdd(x9, a, b);
    x10 = hn::MulAdd(x10, a, b);
    x11 = hn::MulAdd(x11, a, b);
  }
  const auto left = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(x4, x5));
  const auto right = hn::Add(hn::Add(hn::Add(x6, x7), hn::Add(x8, x9)), hn::Add(x10, x11));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(left, right)));
}

// Floating-point operations of one step of MultiplyAdd.
std::size_t OperationsPerStep() { return 12 * 2 * hn::Lanes(hn::ScalableTag<float>()); }

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "base/host_device.h"
#include "base/host_rates.h"
#include "base/stats.h"
#include "base/thread_pool.h"
#include "culet/device.h"

namespace culet {
HWY_EXPORT(ReadAll);
HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(OperationsPerStep);

namespace {

// A sample lasts a millisecond or two: other processes seldom interrupt so short a time.
constexpr int kSamples = 20;
constexpr int kChunks = 16;
constexpr std::size_t kMinChunkBytes = std::size_t{16} << 20;
// Half as much again as the cache: what a pass leaves there is gone when the next comes to it.
constexpr double kBeyondCache = 1.5;
constexpr std::size_t kMinBytes = std::size_t{64} << 20;
// Long beside waking the pool's threads.
constexpr std::size_t kSteps = std::size_t{1} << 19;

// Keeps results alive that nobody needs.
std::atomic<float> g_sink{0};

// Pages straight from the system, so that they go back to it afterwards, and large ones where it
// has them: half a gigabyte of small pages takes longer to fault in than to measure.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      data_ = nullptr;
    } else {
      madvise(data_, bytes, MADV_HUGEPAGE);
    }
  }
  ~Pages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  float* floats() const noexcept { return static_cast<float*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// Seconds of run(sample), after one run to warm up: the lower quartile, because a rate is what the
// machine can do, and other processes only ever take from it. 0 when other threads used the pool in
// every sample, or did not end.
template <class Run>
double SecondsOf(ThreadPool& pool, const std::function<double()>& clock_s, int samples,
                 const Run& run) {
  std::vector<double> seconds;
  for (int sample = 0; sample <= samples; ++sample) {
    MeasuringAlone alone(pool);
    if (!alone.begun()) return 0;
    const double begin_s = clock_s();
    run(sample);
    const double taken_s = clock_s() - begin_s;
    if (alone.End() && sample > 0) seconds.push_back(taken_s);
  }
  if (seconds.empty()) return 0;
  return std::max(Quantile(std::move(seconds), 0.25), 1e-9);
}

}  // namespace

Result<HardwareRates> MeasureHostRates() {
  const auto clock_s = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  return MeasureHostRates({clock_s, HostDevice().cache_bytes, AvailableMemoryBytes()});
}

Result<HardwareRates> MeasureHostRates(const HostRatesInputs& inputs) {
  ThreadPool& pool = HostPool();
  const std::size_t cache_bytes = inputs.cache_bytes;
  const std::size_t wanted = std::max(
      kMinBytes, static_cast<std::size_t>(kBeyondCache * static_cast<double>(cache_bytes)));
  const std::size_t allowed = inputs.free_bytes / 2;
  const std::size_t bytes = std::min(wanted, allowed);
  if (bytes <= cache_bytes || bytes < kMinBytes) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("measuring the read rate takes {} MiB, more than the last-level cache "
                    "holds, but half of the free memory is {} MiB; free some, or use "
                    "TypicalRates",
                    wanted >> 20, allowed >> 20));
  }
  const Pages pages(bytes);
  if (pages.floats() == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("the system refuses {} MiB of memory", bytes >> 20));
  }

  // Chunk after chunk, round and round; each thread has a slice of whole cache lines of a chunk, so
  // that vector loads are aligned.
  const std::size_t threads = static_cast<std::size_t>(pool.threads());
  const std::size_t chunk = std::max(bytes / kChunks, kMinChunkBytes) / sizeof(float);
  const std::size_t slice = chunk / threads & ~std::size_t{63};
  const int chunks = static_cast<int>(bytes / sizeof(float) / chunk);
  const auto slice_of = [&](int sample, int task) {
    return pages.floats() + static_cast<std::size_t>(sample % chunks) * chunk +
           static_cast<std::size_t>(task) * slice;
  };
  // Written once: untouched pages would all be the one page of zeros.
  for (int i = 0; i < chunks; ++i) {
    pool.Run(pool.threads(), [&](int task, int) { std::fill_n(slice_of(i, task), slice, 1.0f); });
  }
  const double read_s = SecondsOf(pool, inputs.clock_s, 2 * chunks, [&](int sample) {
    pool.Run(pool.threads(), [&](int task, int) {
      g_sink.store(HWY_DYNAMIC_DISPATCH(ReadAll)(slice_of(sample, task), slice),
                   std::memory_order_relaxed);
    });
  });
  const double compute_s = SecondsOf(pool, inputs.clock_s, kSamples, [&](int) {
    pool.Run(pool.threads(), [](int, int) {
      g_sink.store(HWY_DYNAMIC_DISPATCH(MultiplyAdd)(kSteps), std::memory_order_relaxed);
    });
  });
  const double launch_s = SecondsOf(pool, inputs.clock_s, kSamples,
                                    [&](int) { pool.Run(pool.threads(), [](int, int) {}); });

  if (read_s == 0 || compute_s == 0 || launch_s == 0) {
    return Status(StatusCode::kFailedPrecondition,
                  "other threads of the process ran products in every sample of the rates; measure "
                  "them while no product runs");
  }

  const double read_bytes = static_cast<double>(threads * slice * sizeof(float));
  const double operations =
      static_cast<double>(threads * kSteps * HWY_DYNAMIC_DISPATCH(OperationsPerStep)());
  HardwareRates rates;
  rates.read_gbps = read_bytes / read_s * 1e-9;
  rates.gflops = operations / compute_s * 1e-9;
  rates.launch_us = launch_s * 1e6;
  rates.measured = true;
  return rates;
}

}  // namespace culet
#endif  // HWY_ONCE
