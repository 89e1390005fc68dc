#include "kernels/sm90/product/launch.h"

#include <cstddef>

#include "cuda/error.h"

namespace culet::sm90 {

cudaError_t LoadKernel(const void* function, int smem_bytes) {
  return Taken(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes));
}

cudaError_t LaunchKernel(const void* function, const LaunchShape& shape, const void* params,
                         cudaStream_t stream) {
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (shape.cluster_size > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(shape.cluster_size);
    attributes[count].val.clusterDim.y = 1;
    attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  if (shape.pdl) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.smem_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  void* arguments[] = {const_cast<void*>(params)};
  return Taken(cudaLaunchKernelExC(&config, function, arguments));
}

}  // namespace culet::sm90
