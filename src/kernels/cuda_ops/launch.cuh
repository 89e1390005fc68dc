// How the operations' kernels are launched, and how a type that is known at run time becomes a
// template's argument.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "culet/types.h"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/overlap.cuh"

namespace culet::cuda_ops {

/// Returns the launch's own error. Requires: every dimension of the grid at least 1; with
/// `stream.overlap` a kernel that begins with WaitForPrevious. `shared`: bytes of dynamic shared
/// memory, more than 48 KB where the kernel is allowed to. `cluster`: blocks of a cluster, which
/// are neighbours in y and divide the grid's.
template <class... Parameters, class... Arguments>
cudaError_t LaunchClusters(void (*kernel)(Parameters...), dim3 grid, int threads, int shared,
                           int cluster, LaunchStream stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream.stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (stream.overlap) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& shape = attributes[config.numAttrs++];
    shape.id = cudaLaunchAttributeClusterDimension;
    shape.val.clusterDim.x = shape.val.clusterDim.z = 1;
    shape.val.clusterDim.y = static_cast<unsigned>(cluster);
  }
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

/// Launches without clusters.
template <class... Parameters, class... Arguments>
cudaError_t LaunchShared(void (*kernel)(Parameters...), dim3 grid, int threads, int shared,
                         LaunchStream stream, Arguments&&... arguments) {
  return LaunchClusters(kernel, grid, threads, shared, 1, stream,
                        std::forward<Arguments>(arguments)...);
}

/// Launches without clusters and without dynamic shared memory.
template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), dim3 grid, int threads, LaunchStream stream,
                   Arguments&&... arguments) {
  return LaunchShared(kernel, grid, threads, 0, stream, std::forward<Arguments>(arguments)...);
}

/// function(T{}) for the type of a value: float32 or bfloat16.
template <class Function>
cudaError_t WithValue(DataType type, Function&& function) {
  if (type == DataType::kFloat32) return function(float{});
  if (type == DataType::kBfloat16) return function(__nv_bfloat16{});
  return cudaErrorInvalidValue;
}

/// As above, for the types of weights and caches: also float16.
template <class Function>
cudaError_t WithStored(DataType type, Function&& function) {
  if (type == DataType::kFloat16) return function(__half{});
  return WithValue(type, std::forward<Function>(function));
}

/// As above, for the types of caches: also E4M3.
template <class Function>
cudaError_t WithCached(DataType type, Function&& function) {
  if (type == DataType::kFloat8_e4m3) return function(__nv_fp8_e4m3{});
  return WithStored(type, std::forward<Function>(function));
}

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A grid of one block for each of `count` pieces. Counts beyond a grid's limits (2^31, or 2^16 in
/// y) give a grid that no launch accepts. Requires: at least 1.
inline dim3 Blocks(std::int64_t count, std::int64_t y = 1) {
  if (count >= std::int64_t{1} << 31 || y >= std::int64_t{1} << 16) return dim3(0);
  return dim3(static_cast<unsigned>(count), static_cast<unsigned>(y));
}

/// Whether `count` elements of T lie at each of the pointers for vectors of 8: whole vectors from a
/// boundary of 16 bytes on.
template <class... Pointers>
bool IsWide(std::int64_t count, const Pointers*... pointers) {
  const std::uintptr_t bits = (reinterpret_cast<std::uintptr_t>(pointers) | ...);
  return count % 8 == 0 && bits % 16 == 0;
}

}  // namespace culet::cuda_ops
