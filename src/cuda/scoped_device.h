// Makes a CUDA device current for a scope.
#pragma once

#include <cuda_runtime_api.h>

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

}  // namespace culet
