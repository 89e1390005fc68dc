// Allows calls that another thread's graph capture would forbid.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/error.h"

namespace culet {

/// While it lives, the calling thread may load and allocate though another thread captures a graph,
/// in whatever mode.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept {
    known_ = Taken(cudaThreadExchangeStreamCaptureMode(&mode_)) == cudaSuccess;
  }
  ~RelaxedCapture() {
    if (known_) Taken(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool known_ = false;
};

}  // namespace culet
