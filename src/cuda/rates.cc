// MeasureAcceleratorRates: what this GPU can do at most, by two kernels that do nothing else.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "base/accelerator.h"
#include "base/device_scope.h"
#include "base/stats.h"
#include "cuda/error.h"
#include "cuda/measure.h"
#include "cuda/runtime.h"

namespace culet {
namespace {

constexpr int kSamples = 5;

// Long enough that the start of the kernel is below 1 % of it, on any GPU of today.
constexpr std::size_t kReadBytes = std::size_t{4} << 30;

// About 3 ms a launch and 0.1 s a sample on an H200, so the power limit takes effect.
constexpr int kTensorRounds = 1000, kTensorLaunches = 40;

// Median microseconds of what `launches` puts on a stream.
Result<double> MedianUs(Runtime& runtime, int samples,
                        const std::function<Status(cudaStream_t)>& launches) {
  const auto replay = runtime.Record(launches);
  if (!replay) return replay.status();
  std::vector<double> times_us;
  for (int i = 0; i < samples; ++i) {
    const auto time_us = (*replay)->TimeUs();
    if (!time_us) return time_us.status();
    times_us.push_back(*time_us);
  }
  return Median(times_us);
}

Result<double> ReadGbps(const DeviceInfo& device, Runtime& runtime) {
  const std::size_t bytes = std::min(kReadBytes, device.memory_bytes / 4 / 256 * 256);
  const auto block = DeviceBuffer::Create(runtime.memory(), bytes + 256);
  if (!block) return block.status();
  auto* sink = FromDevicePtr<unsigned>(block->get());
  auto* data = FromDevicePtr<std::byte>(block->get()) + 256;
  CULET_RETURN_IF_ERROR(CudaStatus(cudaMemset(data, 0x5a, bytes), "cudaMemset"));
  const auto time_us = MedianUs(runtime, kSamples, [&](cudaStream_t stream) {
    return CudaStatus(LaunchRead(data, bytes, device.units, sink, stream), "the read kernel");
  });
  if (!time_us) return time_us.status();
  return static_cast<double>(bytes) / *time_us / 1e3;
}

// What the power limit leaves of the FP8 tensor cores when there is no memory traffic.
Result<double> TensorGflops(const DeviceInfo& device, Runtime& runtime) {
  const auto block = DeviceBuffer::Create(runtime.memory(), 256);
  if (!block) return block.status();
  auto* sink = FromDevicePtr<float>(block->get());
  const auto time_us = MedianUs(runtime, 3, [&](cudaStream_t stream) -> Status {
    for (int i = 0; i < kTensorLaunches; ++i) {
      CULET_RETURN_IF_ERROR(CudaStatus(LaunchTensorRate(kTensorRounds, device.units, sink, stream),
                                       "the tensor core kernel"));
    }
    return {};
  });
  if (!time_us) return time_us.status();
  return kTensorRateOperations * kTensorRounds * kTensorLaunches * device.units / *time_us / 1e3;
}

}  // namespace

Result<HardwareRates> MeasureAcceleratorRates(const DeviceInfo& device, DataType type) {
  const DeviceScope scope(device.ordinal);
  Runtime& runtime = CudaRuntime(device.ordinal);
  HardwareRates rates = TypicalRates(device, type);
  const auto read_gbps = ReadGbps(device, runtime);
  if (!read_gbps) return read_gbps.status();
  rates.read_gbps = *read_gbps;
  // Elsewhere, and for FP32, which has no tensor cores, the typical rate stays.
  if (device.arch != 900 || SizeOf(type) > 2) return rates;
  const auto gflops = TensorGflops(device, runtime);
  if (!gflops) return gflops.status();
  // A tensor core takes twice the clocks for elements of 16 bits.
  rates.gflops = type == DataType::kFloat8_e4m3 ? *gflops : *gflops / 2;
  rates.measured = true;
  return rates;
}

}  // namespace culet
