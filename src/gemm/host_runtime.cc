// The host's memory and clock behind the Runtime interface, and the choice among runtimes.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "base/accelerator.h"
#include "base/caught.h"
#include "base/thread_pool.h"
#include "base/time_alone.h"
#include "culet/scratch.h"
#include "gemm/output_scan.h"
#include "gemm/runtime.h"

namespace culet {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kCopyChunk = std::size_t{4} << 20;

constexpr std::size_t RoundUp(std::size_t bytes, std::size_t step) noexcept {
  return (bytes + step - 1) / step * step;
}

class HostReplay final : public Replay {
 public:
  explicit HostReplay(std::function<Status(cudaStream_t)> launches)
      : launches_(std::move(launches)) {}

  Result<double> TimeUs(int times) override {
    const auto total_us = TimeAloneUs(HostPool(), [&]() -> Status {
      for (int i = 0; i < times; ++i) CULET_RETURN_IF_ERROR(launches_(nullptr));
      return {};
    });
    if (!total_us) return total_us.status();
    return *total_us / times;
  }

 private:
  std::function<Status(cudaStream_t)> launches_;
};

class HostRuntime final : public Runtime {
 public:
  Result<void*> Allocate(std::size_t bytes) override {
    const std::size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    void* pointer =
        bytes <= SIZE_MAX - alignment
            ? std::aligned_alloc(alignment, RoundUp(std::max<std::size_t>(bytes, 1), alignment))
            : nullptr;
    if (pointer == nullptr) {
      return Status(
          StatusCode::kResourceExhausted,
          fmt::format("the host has no {} bytes left; use a smaller problem or fewer sets", bytes));
    }
    // Only advice: where huge pages are off, all is as before, with more TLB misses.
    if (bytes >= kHugePage) madvise(pointer, bytes, MADV_HUGEPAGE);
    return pointer;
  }

  void Free(void* pointer) noexcept override { std::free(pointer); }

  Status ToDevice(void* device, const void* host, std::size_t bytes) override {
    return Copy(device, host, bytes);
  }
  Status ToHost(void* host, const void* device, std::size_t bytes) override {
    return Copy(host, device, bytes);
  }

  Status CopyOnDevice(void* to, const void* from, std::size_t bytes) override {
    return Copy(to, from, bytes);
  }

  Result<OutputScan> Scan(const OutputLines& lines, const void* found,
                          const void* pristine) override {
    return ScanOutput(lines, static_cast<const std::byte*>(found),
                      static_cast<const std::byte*>(pristine));
  }

  Status Synchronize() override { return {}; }

  Result<double> TimeUs(const std::function<Status()>& launch,
                        const std::function<bool()>& give_up) override {
    return TimeAloneUs(HostPool(), launch, give_up);
  }

  Result<std::unique_ptr<Replay>> Record(
      const std::function<Status(cudaStream_t)>& launches) override {
    return std::unique_ptr<Replay>(std::make_unique<HostReplay>(launches));
  }

 private:
  // In parallel: the first touch of fresh pages takes longer than the copy itself.
  static Status Copy(void* to, const void* from, std::size_t bytes) {
    const auto chunks = static_cast<int>((bytes + kCopyChunk - 1) / kCopyChunk);
    HostPool().Run(chunks, [&](int chunk, int) {
      const std::size_t begin = static_cast<std::size_t>(chunk) * kCopyChunk;
      std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                  std::min(kCopyChunk, bytes - begin));
    });
    return {};
  }
};

}  // namespace

Runtime& GetRuntime(const DeviceInfo& device) {
  if (device.arch != 0) {
    if (Runtime* runtime = AcceleratorRuntime(device)) return *runtime;
  }
  static HostRuntime host;
  return host;
}

Result<double> TimeLaunchUs(const DeviceInfo& device, const std::function<Status()>& launch) {
  return GetRuntime(device).TimeUs([&] { return CaughtAs("the launch", launch); }, nullptr);
}

}  // namespace culet
