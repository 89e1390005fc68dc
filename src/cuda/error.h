// cudaError_t as Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "culet/status.h"

namespace culet {

/// `call` says what was attempted, e.g. "cudaMalloc of 4096 bytes".
inline Status CudaStatus(cudaError_t error, const std::string& call) {
  if (error == cudaSuccess) return {};
  const StatusCode code =
      error == cudaErrorMemoryAllocation ? StatusCode::kResourceExhausted : StatusCode::kInternal;
  return Status(code, call + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
}

}  // namespace culet
