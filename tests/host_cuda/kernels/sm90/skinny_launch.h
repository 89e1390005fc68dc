// See host_cuda.h: src/kernels/sm90/skinny_launch.h on the CPU.
#pragma once

#include <cuda_runtime.h>

#include "kernels/sm90/launch.h"

namespace culet::sm90 {

template <class Launch>
cudaError_t LaunchWarps(const Launch& launch, cudaStream_t stream) {
  using Params = decltype(launch.params);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(launch.ctas));
  config.blockDim =
      dim3(32, static_cast<unsigned>(launch.splits), static_cast<unsigned>(launch.row_groups));
  config.dynamicSmemBytes = static_cast<std::size_t>(launch.smem_bytes);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = launch.params.early_weights != 0 ? 1 : 0;
  const auto kernel = reinterpret_cast<void (*)(Params)>(const_cast<void*>(launch.Function()));
  return cudaLaunchKernelEx(&config, kernel, launch.params);
}

inline cudaError_t LoadKernel(const void* function, int smem_bytes) {
  host_cuda::AllowShared(function, static_cast<std::size_t>(smem_bytes));
  return cudaSuccess;
}

}  // namespace culet::sm90
