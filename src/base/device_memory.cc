// Memory of the host, and buffers that free themselves.
#include "culet/device_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/host_device.h"
#include "base/thread_pool.h"

namespace culet {
namespace {

constexpr std::size_t kAlignment = 256;
// Large pages, where the system gives them on request: a decoder's step reads every weight once,
// and with small pages its products take an eighth longer.
constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr std::size_t kCopyChunk = std::size_t{4} << 20;

// By all threads where it is large: the first touch of fresh pages takes longer than the copy.
void CopyBytes(void* to, const void* from, std::size_t bytes) {
  if (bytes <= kCopyChunk) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  HostPool().Run(static_cast<int>((bytes + kCopyChunk - 1) / kCopyChunk), [&](int chunk, int) {
    const std::size_t at = static_cast<std::size_t>(chunk) * kCopyChunk;
    std::memcpy(static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + at,
                std::min(kCopyChunk, bytes - at));
  });
}

class HostMemoryImpl final : public DeviceMemory {
 public:
  Result<DevicePtr> Allocate(std::size_t bytes) override {
    const std::size_t alignment = bytes >= kLargePage ? kLargePage : kAlignment;
    void* pointer = nullptr;
    if (bytes <= SIZE_MAX - alignment) {
      pointer = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    }
    if (pointer == nullptr) {
      return Status(
          StatusCode::kResourceExhausted,
          fmt::format("{} bytes of host memory cannot be had; make the problem, the cache "
                      "or the batch smaller",
                      bytes));
    }
#ifdef MADV_HUGEPAGE
    if (alignment == kLargePage) {
      // A wish: where it is not granted, small pages serve.
      static_cast<void>(madvise(pointer, bytes / kLargePage * kLargePage, MADV_HUGEPAGE));
    }
#endif
    return ToDevicePtr(pointer);
  }
  void Free(DevicePtr pointer) noexcept override { std::free(FromDevicePtr<void>(pointer)); }
  Status Upload(DevicePtr to, const void* from, std::size_t bytes, cudaStream_t) override {
    CopyBytes(FromDevicePtr<void>(to), from, bytes);
    return {};
  }
  Status Download(void* to, DevicePtr from, std::size_t bytes, cudaStream_t) override {
    CopyBytes(to, FromDevicePtr<const void>(from), bytes);
    return {};
  }
  Status Copy(DevicePtr to, DevicePtr from, std::size_t bytes, cudaStream_t) override {
    CopyBytes(FromDevicePtr<void>(to), FromDevicePtr<const void>(from), bytes);
    return {};
  }
  Status Synchronize(cudaStream_t) override { return {}; }
  bool reads_host_memory() const noexcept override { return true; }
  std::optional<std::size_t> free_bytes() const noexcept override {
    try {
      if (const std::size_t bytes = AvailableMemoryBytes(); bytes > 0) return bytes;
    } catch (const std::bad_alloc&) {  // then there is nothing to compare with
    }
    return std::nullopt;
  }
};

// Complete when everything on the stream is.
class StreamEvent final : public DeviceEvent {
 public:
  explicit StreamEvent(DeviceMemory& memory) : memory_(memory) {}
  Status Record(cudaStream_t stream) override {
    stream_ = stream;
    recorded_ = true;
    return {};
  }
  Status Wait() override { return recorded_ ? memory_.Synchronize(stream_) : Status(); }

 private:
  DeviceMemory& memory_;
  cudaStream_t stream_ = nullptr;
  bool recorded_ = false;
};

}  // namespace

DeviceMemory& HostMemory() noexcept {
  static HostMemoryImpl memory;
  return memory;
}

Status DeviceMemory::Copy(DevicePtr to, DevicePtr from, std::size_t bytes, cudaStream_t stream) {
  std::vector<std::byte> held(bytes);
  CULET_RETURN_IF_ERROR(Download(held.data(), from, bytes, stream));
  return Upload(to, held.data(), bytes, stream);
}

Result<void*> DeviceMemory::AllocateShared(std::size_t bytes) {
  if (!reads_host_memory()) {
    return Status(StatusCode::kUnsupported,
                  "this memory shares none with the host; override AllocateShared and FreeShared");
  }
  const auto pointer = HostMemory().Allocate(bytes);
  if (!pointer) return pointer.status();
  return FromDevicePtr<void>(*pointer);
}

void DeviceMemory::FreeShared(void* pointer) noexcept { HostMemory().Free(ToDevicePtr(pointer)); }

Status DeviceMemory::StartUpload(DevicePtr to, const void* shared, std::size_t bytes,
                                 cudaStream_t stream) {
  return Upload(to, shared, bytes, stream);
}

Result<std::unique_ptr<DeviceEvent>> DeviceMemory::MakeEvent() {
  return std::unique_ptr<DeviceEvent>(std::make_unique<StreamEvent>(*this));
}

Result<SharedBuffer> SharedBuffer::Create(DeviceMemory& memory, std::size_t bytes) {
  auto pointer = memory.AllocateShared(bytes);
  if (!pointer) return pointer.status();
  SharedBuffer buffer;
  buffer.memory_ = &memory;
  buffer.pointer_ = *pointer;
  return buffer;
}

SharedBuffer::~SharedBuffer() {
  if (memory_ != nullptr) memory_->FreeShared(pointer_);
}

SharedBuffer::SharedBuffer(SharedBuffer&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      pointer_(std::exchange(other.pointer_, nullptr)) {}

SharedBuffer& SharedBuffer::operator=(SharedBuffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(pointer_, other.pointer_);
  return *this;
}

Result<DeviceBuffer> DeviceBuffer::Create(DeviceMemory& memory, std::size_t bytes) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  auto pointer = memory.Allocate(bytes);
  if (!pointer) return pointer.status();
  buffer.memory_ = &memory;
  buffer.pointer_ = *pointer;
  buffer.bytes_ = bytes;
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (memory_ != nullptr) memory_->Free(pointer_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      pointer_(std::exchange(other.pointer_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace culet
