#include "cuda/rank_device.h"

#include <cuda_runtime.h>

#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "cuda/error.h"

namespace culet {
namespace {

// The number of the GPU whose memory it is.
Result<int> DeviceOf(DeviceMemory& memory) {
  constexpr std::size_t kBytes = 256;
  const auto buffer = DeviceBuffer::Create(memory, kBytes);
  if (!buffer) return buffer.status();
  cudaPointerAttributes attributes{};
  CULET_RETURN_IF_ERROR(
      CudaStatus(cudaPointerGetAttributes(&attributes, FromDevicePtr<void>(buffer->get())),
                 "cudaPointerGetAttributes"));
  return attributes.device;
}

}  // namespace

Result<std::vector<cudaUUID_t>> DevicesOfRanks(Communicator& ranks, int device) {
  cudaDeviceProp properties{};
  CULET_RETURN_IF_ERROR(ranks.Agree(
      CudaStatus(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"),
      "named"));
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<cudaUUID_t> all(size);
  const std::vector<std::size_t> bytes(size, sizeof(cudaUUID_t));
  CULET_RETURN_IF_ERROR(ranks.AllGather(&properties.uuid, bytes, all.data()));
  return all;
}

Result<int> DeviceOfRank(Communicator& ranks, DeviceMemory& memory) {
  const auto device = DeviceOf(memory);
  CULET_RETURN_IF_ERROR(ranks.Agree(device.status(), "a GPU"));
  const auto all = DevicesOfRanks(ranks, *device);
  if (!all) return all.status();
  for (std::size_t a = 0; a < all->size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (std::memcmp(&(*all)[a], &(*all)[b], sizeof(cudaUUID_t)) != 0) continue;
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("ranks {} and {} have one GPU; give each its own", b, a));
    }
  }
  return device;
}

}  // namespace culet
