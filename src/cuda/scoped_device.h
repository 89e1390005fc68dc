// Makes a CUDA device current for a scope; whose a stream is.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/memory.h"

namespace culet {

/// A negative ordinal (the host) changes nothing. Two queries of the calling thread's own state
/// where the device is current already.
class ScopedDevice {
 public:
  explicit ScopedDevice(int ordinal) noexcept {
    int current = -1;
    if (ordinal < 0 || cudaGetDevice(&current) != cudaSuccess || current == ordinal) return;
    if (cudaSetDevice(ordinal) == cudaSuccess) previous_ = current;
  }
  ~ScopedDevice() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

 private:
  int previous_ = -1;  // to be restored; -1: nothing was changed
};

/// Whether a launch on `stream` runs on device `ordinal` while that is current: CUDA runs it on the
/// device that the stream was made for. True on the host (a negative ordinal) and where nobody
/// knows, as of a stream that records a graph: cudaStreamGetDevice would spoil the capture. Asks
/// only in processes that see several devices.
inline bool IsStreamOf(cudaStream_t stream, int ordinal) noexcept {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return true;
  static const bool several = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 1;
  }();
  int device = ordinal;
  return ordinal < 0 || !several || IsCapturing(stream) ||
         cudaStreamGetDevice(stream, &device) != cudaSuccess || device == ordinal;
}

}  // namespace culet
