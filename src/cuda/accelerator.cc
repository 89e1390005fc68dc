// The accelerators of a build with CUDA: memory, streams, the current device.
#include "base/accelerator.h"

#include <cuda_runtime_api.h>

#include "cuda/error.h"
#include "cuda/quantize_e4m3.h"
#include "cuda/runtime.h"

namespace culet {

Runtime* AcceleratorRuntime(const DeviceInfo& device) { return &CudaRuntime(device.ordinal); }

Status ZeroAcceleratorMemory(void* pointer, std::size_t bytes, cudaStream_t stream) {
  return CudaStatus(cudaMemsetAsync(pointer, 0, bytes, stream), "zeroing a workspace");
}

bool IsCapturing(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return Taken(cudaStreamIsCapturing(stream, &status)) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

std::uint64_t CaptureId(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  return Taken(cudaStreamGetCaptureInfo(stream, &status, &id)) == cudaSuccess &&
                 status != cudaStreamCaptureStatusNone
             ? id
             : 0;
}

int EnterAccelerator(int ordinal) noexcept {
  int current = -1;
  if (Taken(cudaGetDevice(&current)) != cudaSuccess || current == ordinal) return -1;
  return Taken(cudaSetDevice(ordinal)) == cudaSuccess ? current : -1;
}

void LeaveAccelerator(int previous) noexcept { Taken(cudaSetDevice(previous)); }

bool IsStreamOfAccelerator(cudaStream_t stream, int ordinal) noexcept {
  if (stream == cudaStreamLegacy || stream == cudaStreamPerThread) return true;
  static const bool several = [] {
    int count = 0;
    return Taken(cudaGetDeviceCount(&count)) == cudaSuccess && count > 1;
  }();
  // Unknown for a stream that records a graph, because cudaStreamGetDevice would spoil the capture.
  int device = ordinal;
  return !several || IsCapturing(stream) ||
         Taken(cudaStreamGetDevice(stream, &device)) != cudaSuccess || device == ordinal;
}

Status QuantizeRowsE4m3(const QuantizeE4m3Args& args, bool pdl, cudaStream_t stream) {
  return CudaStatus(LaunchQuantizeE4m3(args, pdl, stream), "launching the quantiser");
}

}  // namespace culet
