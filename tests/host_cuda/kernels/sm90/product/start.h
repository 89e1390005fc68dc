// See host_cuda.h: src/kernels/sm90/product/start.h on the CPU.
#pragma once

#include <cuda_runtime.h>

#include "kernels/sm90/product/launch.h"

namespace culet::sm90 {

template <class Params>
cudaError_t StartKernel(const void* function, const LaunchShape& shape, const Params& params,
                        cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (shape.cluster_size > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster_size), 1, 1};
  }
  if (shape.pdl) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.smem_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  const auto kernel = reinterpret_cast<void (*)(Params)>(const_cast<void*>(function));
  return cudaLaunchKernelEx(&config, kernel, params);
}

inline cudaError_t LoadKernel(const void* function, int smem_bytes) {
  host_cuda::AllowShared(function, static_cast<std::size_t>(smem_bytes));
  return cudaSuccess;
}

}  // namespace culet::sm90
