#include "cuda/memory.h"

#include <cuda_runtime_api.h>

#include "cuda/error.h"

namespace culet {

bool IsCudaMemory(const void* pointer) noexcept {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    // Without a driver the query itself fails; its error must not surface in the caller's next
    // call.
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

Status ZeroCudaMemory(void* pointer, std::size_t bytes, cudaStream_t stream) {
  return CudaStatus(cudaMemsetAsync(pointer, 0, bytes, stream), "zeroing a workspace");
}

bool IsCapturing(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

std::uint64_t CaptureId(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  return cudaStreamGetCaptureInfo(stream, &status, &id) == cudaSuccess &&
                 status != cudaStreamCaptureStatusNone
             ? id
             : 0;
}

}  // namespace culet
