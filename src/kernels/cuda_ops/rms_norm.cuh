// What norms are made of.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "culet/types.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

constexpr int kWarp = 32;

/// A gamma's elements from `at` on: float32, float16 or bfloat16.
template <int kWide>
__device__ __forceinline__ void LoadStored(const void* from, DataType type, int at,
                                           float (&to)[kWide]) {
  if (type == DataType::kFloat32) {
    Load(static_cast<const float*>(from) + at, to);
  } else if (type == DataType::kBfloat16) {
    Load(static_cast<const __nv_bfloat16*>(from) + at, to);
  } else {
    Load(static_cast<const __half*>(from) + at, to);
  }
}

template <int kWide>
__device__ __forceinline__ float SumOfSquares(const float (&x)[kWide]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWide; ++i) sum = fmaf(x[i], x[i], sum);
  return sum;
}

/// The sum over a block, a multiple of a warp, in all of its threads. `warps`: shared memory, a float
/// for each of them.
__device__ __forceinline__ float SumOfBlock(float sum, float* warps) {
  sum = SumLanes<kWarp>(sum);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return SumLanes<kWarp>(lane < static_cast<int>(blockDim.x) / kWarp ? warps[lane] : 0.0f);
}

/// The same of a block of at most kMostThreads.
template <int kMostThreads>
__device__ __forceinline__ float SumOfBlock(float sum) {
  __shared__ float warps[kMostThreads / kWarp];
  return SumOfBlock(sum, warps);
}

/// What an element is multiplied with before gamma.
__device__ __forceinline__ float NormScale(float sum, int width, float epsilon) {
  return 1.0f / sqrtf(sum / static_cast<float>(width) + epsilon);
}

}  // namespace culet::cuda_ops
