// The host's clock behind the Runtime interface, and the choice among runtimes.
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
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
  DeviceMemory& memory() noexcept override { return HostMemory(); }

  Result<OutputScan> Scan(const OutputLines& lines, const void* found,
                          const void* pristine) override {
    return ScanOutput(lines, static_cast<const std::byte*>(found),
                      static_cast<const std::byte*>(pristine));
  }

  Status Gather(const void* base, std::span<const std::size_t> offsets, std::size_t element_bytes,
                void* to) override {
    const auto* const from = static_cast<const std::byte*>(base);
    auto* out = static_cast<std::byte*>(to);
    for (const std::size_t offset : offsets) {
      std::memcpy(out, from + offset, element_bytes);
      out += element_bytes;
    }
    return {};
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
