#include "cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

#include "cuda/error.h"

namespace culet {
namespace {

// Makes a device current for a scope.
class ScopedDevice {
 public:
  explicit ScopedDevice(int ordinal) {
    if (cudaGetDevice(&previous_) == cudaSuccess && previous_ != ordinal) cudaSetDevice(ordinal);
  }
  ~ScopedDevice() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

 private:
  int previous_ = -1;
};

struct EventDeleter {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, EventDeleter>;

Result<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  CULET_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&event), "cudaEventCreate"));
  return Event(event);
}

class CudaDeviceRuntime final : public Runtime {
 public:
  explicit CudaDeviceRuntime(int ordinal) : ordinal_(ordinal) {}

  Result<void*> Allocate(std::size_t bytes) override {
    const ScopedDevice scope(ordinal_);
    void* pointer = nullptr;
    CULET_RETURN_IF_ERROR(
        CudaStatus(cudaMalloc(&pointer, bytes), fmt::format("cudaMalloc of {} bytes", bytes)));
    return pointer;
  }

  void Free(void* pointer) noexcept override {
    const ScopedDevice scope(ordinal_);
    cudaFree(pointer);
  }

  Status ToDevice(void* device, const void* host, std::size_t bytes) override {
    const ScopedDevice scope(ordinal_);
    return CudaStatus(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice),
                      "copy to the device");
  }

  Status ToHost(void* host, const void* device, std::size_t bytes) override {
    const ScopedDevice scope(ordinal_);
    return CudaStatus(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost),
                      "copy from the device");
  }

  Status Synchronize() override {
    const ScopedDevice scope(ordinal_);
    return CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  Result<double> TimeUs(const std::function<Status()>& launch) override {
    const ScopedDevice scope(ordinal_);
    const auto start = MakeEvent();
    if (!start) return start.status();
    const auto end = MakeEvent();
    if (!end) return end.status();
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(start->get(), nullptr), "cudaEventRecord"));
    CULET_RETURN_IF_ERROR(launch());
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end->get(), nullptr), "cudaEventRecord"));
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(end->get()), "the launch"));
    float milliseconds = 0;
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, start->get(), end->get()),
                                     "cudaEventElapsedTime"));
    return milliseconds * 1e3;
  }

 private:
  int ordinal_;
};

}  // namespace

Runtime& CudaRuntime(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: kernels may still run while static objects of other files go.
  static auto& runtimes = *new std::map<int, std::unique_ptr<CudaDeviceRuntime>>;
  const std::lock_guard lock(mutex);
  auto& runtime = runtimes[ordinal];
  if (runtime == nullptr) runtime = std::make_unique<CudaDeviceRuntime>(ordinal);
  return *runtime;
}

}  // namespace culet
