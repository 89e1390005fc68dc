#include "cuda/device_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/device_scope.h"
#include "base/thread_pool.h"
#include "cuda/error.h"
#include "cuda/relaxed_capture.h"

namespace culet {
namespace {

// Two pieces of pinned memory: one is filled while the other is on its way.
class Staging {
 public:
  static constexpr std::size_t kPiece = std::size_t{16} << 20;

  Status Upload(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
    CULET_RETURN_IF_ERROR(Make());
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      Piece& piece = pieces_[next_];
      next_ = 1 - next_;
      const std::size_t size = std::min(kPiece, bytes - at);
      CULET_RETURN_IF_ERROR(
          CudaStatus(cudaEventSynchronize(piece.sent), "waiting for an upload before"));
      Copy(piece.memory, from + at, size);
      CULET_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(to + at, piece.memory, size, cudaMemcpyHostToDevice, stream),
                     "an upload"));
      if (const Status sent = CudaStatus(cudaEventRecord(piece.sent, stream), "cudaEventRecord");
          !sent.ok()) {
        Taken(cudaStreamSynchronize(stream));  // the copy may be under way, and nothing tells when
        return sent;
      }
    }
    return {};
  }

 private:
  struct Piece {
    std::byte* memory = nullptr;
    cudaEvent_t sent = nullptr;
  };

  Status Make() {
    const RelaxedCapture relaxed;
    for (Piece& piece : pieces_) {
      if (piece.memory == nullptr) {
        void* memory = nullptr;
        CULET_RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&memory, kPiece),
                                         fmt::format("cudaMallocHost of {} bytes", kPiece)));
        piece.memory = static_cast<std::byte*>(memory);
      }
      if (piece.sent == nullptr) {
        CULET_RETURN_IF_ERROR(
            CudaStatus(cudaEventCreateWithFlags(&piece.sent, cudaEventDisableTiming),
                       "cudaEventCreateWithFlags"));
      }
    }
    return {};
  }

  // Pages of a mapped file are read from disk here, so many threads request them.
  static void Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    constexpr std::size_t kTask = std::size_t{256} << 10;
    HostPool().Run(static_cast<int>((bytes + kTask - 1) / kTask), [&](int task, int) {
      const std::size_t at = static_cast<std::size_t>(task) * kTask;
      std::memcpy(to + at, from + at, std::min(kTask, bytes - at));
    });
  }

  Piece pieces_[2];
  int next_ = 0;
};

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(int ordinal, cudaEvent_t event) : ordinal_(ordinal), event_(event) {}
  ~CudaEvent() override { Taken(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  Status Record(cudaStream_t stream) override {
    const DeviceScope scope(ordinal_);
    return CudaStatus(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  Status Wait() override {
    return CudaStatus(cudaEventSynchronize(event_), "the work on the device");
  }

 private:
  int ordinal_;
  cudaEvent_t event_;
};

// Whether an asynchronous copy from this memory returns only after CUDA has read it. Pinned memory
// is read later, when the stream reaches the copy.
bool IsPageable(const void* pointer) {
  cudaPointerAttributes attributes{};
  return Taken(cudaPointerGetAttributes(&attributes, pointer)) == cudaSuccess &&
         attributes.type == cudaMemoryTypeUnregistered;
}

class CudaMemoryImpl final : public DeviceMemory {
 public:
  explicit CudaMemoryImpl(int ordinal) : ordinal_(ordinal) {}

  Result<DevicePtr> Allocate(std::size_t bytes) override {
    const DeviceScope scope(ordinal_);
    const RelaxedCapture relaxed;
    void* pointer = nullptr;
    const cudaError_t error = cudaMalloc(&pointer, bytes);
    if (error == cudaSuccess) return ToDevicePtr(pointer);
    if (error != cudaErrorMemoryAllocation) {
      return CudaStatus(error, fmt::format("cudaMalloc of {} bytes", bytes));
    }
    static_cast<void>(cudaGetLastError());  // it must not surface in the caller's next call
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = total = 0;
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} bytes of the memory of cuda:{} cannot be had, {} of {} are free; "
                              "make the problem, the cache or the batch smaller",
                              bytes, ordinal_, free, total));
  }

  void Free(DevicePtr pointer) noexcept override {
    const DeviceScope scope(ordinal_);
    const RelaxedCapture relaxed;
    Taken(cudaFree(FromDevicePtr<void>(pointer)));
  }

  Status Upload(DevicePtr to, const void* from, std::size_t bytes, cudaStream_t stream) override {
    if (bytes == 0) return {};
    const DeviceScope scope(ordinal_);
    constexpr std::size_t kSmall = std::size_t{1} << 20;
    if (bytes < kSmall && IsPageable(from)) {
      // CUDA has read it when this returns.
      return CudaStatus(
          cudaMemcpyAsync(FromDevicePtr<void>(to), from, bytes, cudaMemcpyHostToDevice, stream),
          "an upload");
    }
    const std::lock_guard lock(mutex_);
    return staging_.Upload(FromDevicePtr<std::byte>(to), static_cast<const std::byte*>(from), bytes,
                           stream);
  }

  Status Download(void* to, DevicePtr from, std::size_t bytes, cudaStream_t stream) override {
    const DeviceScope scope(ordinal_);
    if (bytes > 0) {
      CULET_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(to, FromDevicePtr<const void>(from), bytes,
                                                       cudaMemcpyDeviceToHost, stream),
                                       "a download"));
    }
    return Synchronize(stream);
  }

  Status Copy(DevicePtr to, DevicePtr from, std::size_t bytes, cudaStream_t stream) override {
    const DeviceScope scope(ordinal_);
    return CudaStatus(cudaMemcpyAsync(FromDevicePtr<void>(to), FromDevicePtr<const void>(from),
                                      bytes, cudaMemcpyDeviceToDevice, stream),
                      "a copy on the device");
  }

  Status Synchronize(cudaStream_t stream) override {
    const DeviceScope scope(ordinal_);
    return CudaStatus(cudaStreamSynchronize(stream), "the work on the device");
  }

  bool reads_host_memory() const noexcept override { return false; }

  std::optional<std::size_t> free_bytes() const noexcept override {
    const DeviceScope scope(ordinal_);
    std::size_t free = 0, total = 0;
    if (Taken(cudaMemGetInfo(&free, &total)) != cudaSuccess) return std::nullopt;
    return free;
  }

  Result<void*> AllocateShared(std::size_t bytes) override {
    const DeviceScope scope(ordinal_);
    const RelaxedCapture relaxed;
    void* pointer = nullptr;
    // At one address here and there, on every device: unified addressing.
    CULET_RETURN_IF_ERROR(
        CudaStatus(cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                   fmt::format("cudaHostAlloc of {} bytes", bytes)));
    return pointer;
  }

  void FreeShared(void* pointer) noexcept override { Taken(cudaFreeHost(pointer)); }

  Status StartUpload(DevicePtr to, const void* shared, std::size_t bytes,
                     cudaStream_t stream) override {
    const DeviceScope scope(ordinal_);
    return CudaStatus(
        cudaMemcpyAsync(FromDevicePtr<void>(to), shared, bytes, cudaMemcpyHostToDevice, stream),
        "an upload from pinned memory");
  }

  Result<std::unique_ptr<DeviceEvent>> MakeEvent() override {
    const DeviceScope scope(ordinal_);
    cudaEvent_t event = nullptr;
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                     "cudaEventCreateWithFlags"));
    return std::unique_ptr<DeviceEvent>(std::make_unique<CudaEvent>(ordinal_, event));
  }

 private:
  int ordinal_;
  std::mutex mutex_;
  Staging staging_;
};

}  // namespace

DeviceMemory& CudaMemory(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: buffers of static objects may still be freed.
  static auto& memories = *new std::map<int, std::unique_ptr<CudaMemoryImpl>>;
  const std::lock_guard lock(mutex);
  auto& memory = memories[ordinal];
  if (memory == nullptr) memory = std::make_unique<CudaMemoryImpl>(ordinal);
  return *memory;
}

}  // namespace culet
