// Host memory that says it is a device's: models are copied into it, as into a GPU's.
#pragma once

#include <cstddef>
#include <optional>

#include "culet/kernel_dispatch.h"

namespace culet {

class OtherMemory final : public DeviceMemory {
 public:
  Result<DevicePtr> Allocate(std::size_t bytes) override { return HostMemory().Allocate(bytes); }
  void Free(DevicePtr pointer) noexcept override { HostMemory().Free(pointer); }
  Status Upload(DevicePtr to, const void* from, std::size_t bytes, cudaStream_t stream) override {
    ++uploads;
    uploaded_bytes += static_cast<double>(bytes);
    return HostMemory().Upload(to, from, bytes, stream);
  }
  Status Download(void* to, DevicePtr from, std::size_t bytes, cudaStream_t stream) override {
    return HostMemory().Download(to, from, bytes, stream);
  }
  Status Synchronize(cudaStream_t) override {
    uploads = 0;
    return {};
  }
  bool reads_host_memory() const noexcept override { return false; }
  std::optional<std::size_t> free_bytes() const noexcept override { return free; }

  int uploads = 0;  // that nobody has waited for
  double uploaded_bytes = 0;
  std::optional<std::size_t> free;  // what free_bytes says
};

}  // namespace culet
