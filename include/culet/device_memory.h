// DeviceMemory: memory of one device, the host's among them, for tensors, weights and measurements.
// Users can implement their own.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "culet/status.h"
#include "culet/tensor.h"
#include "culet/types.h"

namespace culet {

/// A point in the work of a stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Marks the point after everything launched on `stream` so far; replaces the previous mark.
  virtual Status Record(cudaStream_t stream) = 0;
  /// Returns when everything before the mark is complete; at once if nothing was recorded.
  virtual Status Wait() = 0;
};

/// Memory of a device.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Aligned to 256 bytes. Errors: RESOURCE_EXHAUSTED.
  virtual Result<DevicePtr> Allocate(std::size_t bytes) = 0;
  /// Takes effect after the work launched before, so that work can still read the memory.
  virtual void Free(DevicePtr pointer) noexcept = 0;
  /// `from` may be changed once this returns; launches on `stream` that follow see the copy.
  virtual Status Upload(DevicePtr to, const void* from, std::size_t bytes, cudaStream_t stream) = 0;
  /// Complete on return, after everything launched on `stream` before.
  virtual Status Download(void* to, DevicePtr from, std::size_t bytes, cudaStream_t stream) = 0;
  /// Copies between two non-overlapping places of this memory; later launches on `stream` see the
  /// copy. By default through the host, complete on return.
  virtual Status Copy(DevicePtr to, DevicePtr from, std::size_t bytes, cudaStream_t stream);
  /// Returns when everything launched on `stream` is complete.
  virtual Status Synchronize(cudaStream_t stream) = 0;
  /// Whether kernels read the host's memory in place, so that mapped weights need no copy.
  virtual bool reads_host_memory() const noexcept = 0;
  /// About how many bytes Allocate can still give; none if unknown.
  virtual std::optional<std::size_t> free_bytes() const noexcept { return std::nullopt; }

  /// Memory of the host that the device reads and writes in place, at its pointer's address, and
  /// copies without waiting: pinned on a GPU. Aligned to 256 bytes. Errors: RESOURCE_EXHAUSTED;
  /// UNSUPPORTED unless overridden, but where the device reads the host's memory.
  virtual Result<void*> AllocateShared(std::size_t bytes);
  /// Requires: nothing that uses it is under way.
  virtual void FreeShared(void* pointer) noexcept;
  /// Upload from such memory, which may not be changed before the copy is complete on `stream`. By
  /// default Upload itself.
  virtual Status StartUpload(DevicePtr to, const void* shared, std::size_t bytes,
                             cudaStream_t stream);
  /// By default one that waits for its whole stream.
  virtual Result<std::unique_ptr<DeviceEvent>> MakeEvent();
};

/// The host's own memory.
DeviceMemory& HostMemory() noexcept;

/// An allocation that frees itself.
class DeviceBuffer {
 public:
  DeviceBuffer() noexcept = default;
  /// Errors: as DeviceMemory::Allocate. No bytes: no memory, address 0.
  static Result<DeviceBuffer> Create(DeviceMemory& memory, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  DevicePtr get() const noexcept { return pointer_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  DeviceMemory* memory_ = nullptr;
  DevicePtr pointer_ = 0;
  std::size_t bytes_ = 0;
};

/// DeviceMemory::AllocateShared, which frees itself.
class SharedBuffer {
 public:
  SharedBuffer() noexcept = default;
  /// Errors: as DeviceMemory::AllocateShared. Requires: at least one byte.
  static Result<SharedBuffer> Create(DeviceMemory& memory, std::size_t bytes);
  ~SharedBuffer();
  SharedBuffer(SharedBuffer&& other) noexcept;
  SharedBuffer& operator=(SharedBuffer&& other) noexcept;

  void* get() const noexcept { return pointer_; }

 private:
  DeviceMemory* memory_ = nullptr;
  void* pointer_ = nullptr;
};

}  // namespace culet
