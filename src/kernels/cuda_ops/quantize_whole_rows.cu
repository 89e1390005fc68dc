// QuantizeWholeRows: a block a row, which it reads twice where the scale is not given.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/quantize.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 8;  // elements of a row that a thread takes at once

// Elements [col, col + kEach) of a row, zeros beyond its end.
template <bool kWide, class T>
__device__ __forceinline__ void LoadSome(const T* row, std::int64_t col, std::int64_t cols,
                                         float (&v)[kEach]) {
  if constexpr (kWide) {
    Load(row + col, v);
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) v[i] = col + i < cols ? ToFloat(row[col + i]) : 0.0f;
  }
}

// The scale of the row's largest magnitude, in all threads.
template <bool kWide, class T>
__device__ __forceinline__ float ScaleOfRow(const T* row, std::int64_t cols) {
  __shared__ unsigned of_warps[kThreads / 32];
  // Magnitudes compare as integers, and NaN > infinity > the rest.
  unsigned most = 0;
  for (std::int64_t col = std::int64_t{threadIdx.x} * kEach; col < cols; col += kThreads * kEach) {
    float v[kEach];
    LoadSome<kWide>(row, col, cols, v);
#pragma unroll
    for (const float value : v) most = max(most, __float_as_uint(value) & 0x7FFFFFFFu);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    most = max(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) most = max(most, of_warps[warp]);
  return ScaleOfLargest(most);
}

template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    QuantizeWholeRowsKernel(const T* x, std::int64_t cols, float given, std::uint8_t* values,
                            float* scales) {
  WaitForPrevious();
  const T* const row = x + std::int64_t{blockIdx.x} * cols;
  std::uint8_t* const to = values + std::int64_t{blockIdx.x} * cols;
  float scale = given;
  if (!(given > 0)) scale = ScaleOfRow<kWide>(row, cols);
  for (std::int64_t col = std::int64_t{threadIdx.x} * kEach; col < cols; col += kThreads * kEach) {
    float v[kEach];
    LoadSome<kWide>(row, col, cols, v);
    Pack<std::uint8_t, kEach> pack;
#pragma unroll
    for (int i = 0; i < kEach; ++i) pack.elements[i] = CacheCode(v[i], scale);
    if constexpr (kWide) {
      *reinterpret_cast<Pack<std::uint8_t, kEach>*>(to + col) = pack;
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (col + i < cols) to[col + i] = pack.elements[i];
      }
    }
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

}  // namespace

cudaError_t QuantizeWholeRows(const void* x, DataType type, std::int64_t rows, std::int64_t cols,
                              float given, std::uint8_t* values, float* scales,
                              LaunchStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return WithValue(type, [&]<class T>(T) {
    const auto* from = static_cast<const T*>(x);
    const auto kernel = IsWide(cols, from, values) ? &QuantizeWholeRowsKernel<T, true>
                                                   : &QuantizeWholeRowsKernel<T, false>;
    return Launch(kernel, Blocks(rows), kThreads, stream, from, cols, given, values, scales);
  });
}

}  // namespace culet::cuda_ops
