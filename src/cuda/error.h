// cudaError_t as Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "culet/status.h"

namespace culet {

/// The error of a call; clears the thread's last error, which this library or another would
/// otherwise take for its own later.
inline cudaError_t Taken(cudaError_t error) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
}

/// `call` says what was attempted, e.g. "cudaMalloc of 4096 bytes".
inline Status CudaStatus(cudaError_t error, const std::string& call) {
  if (Taken(error) == cudaSuccess) return {};
  const StatusCode code =
      error == cudaErrorMemoryAllocation ? StatusCode::kResourceExhausted : StatusCode::kInternal;
  return Status(code, call + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
}

}  // namespace culet
