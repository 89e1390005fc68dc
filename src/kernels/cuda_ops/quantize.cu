// QuantizeRows: sixteen lanes a group of 128.
#include <cuda_fp8.h>

#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 128;
constexpr int kEach = 8;  // elements of a group that one lane takes
constexpr int kLanes = kGroup / kEach;
constexpr float kLargestE4m3 = 448.0f;

template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    QuantizeRowsKernel(const T* x, std::int64_t rows, std::int64_t cols, std::uint8_t* values,
                       float* scales) {
  WaitForPrevious();
  const std::int64_t groups = (cols + kGroup - 1) / kGroup;  // of a row
  const std::int64_t index = std::int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;
  const std::int64_t row = index / groups;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t col = (index - row * groups) * kGroup + lane * kEach;
  const std::int64_t left = row < rows ? cols - col : 0;  // elements from this lane's first on
  float v[kEach] = {};
  if (kWide && left > 0) {
    Load(x + row * cols + col, v);
  } else if (!kWide) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i < left) v[i] = ToFloat(x[row * cols + col + i]);
    }
  }
  // Magnitudes compare as integers, and NaN > infinity > the rest.
  unsigned most = 0;
#pragma unroll
  for (const float value : v) most = max(most, __float_as_uint(value) & 0x7FFFFFFFu);
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    most = max(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  float scale = __fdiv_rn(__uint_as_float(most), kLargestE4m3);
  if (scale == 0.0f) scale = most == 0 ? 1.0f : __uint_as_float(1u);
  if (most >= 0x7F800000u) scale = NotANumber();
  if (left <= 0) return;
  unsigned packed[2] = {};
#pragma unroll
  for (int i = 0; i < kEach; i += 2) {
    const float2 pair = make_float2(__fdiv_rn(v[i], scale), __fdiv_rn(v[i + 1], scale));
    packed[i / 4] |=
        static_cast<unsigned>(__nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3))
        << (8 * (i % 4));
  }
  std::uint8_t* const to = values + row * cols + col;
  if (kWide) {
    *reinterpret_cast<uint2*>(to) = make_uint2(packed[0], packed[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i < left) to[i] = static_cast<std::uint8_t>(packed[i / 4] >> (8 * (i % 4)));
    }
  }
  if (lane == 0) scales[index] = scale;
}

}  // namespace

cudaError_t QuantizeRows(const void* x, DataType type, std::int64_t rows, std::int64_t cols,
                         std::uint8_t* values, float* scales, LaunchStream stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return WithValue(type, [&]<class T>(T) {
    const auto* from = static_cast<const T*>(x);
    const auto kernel =
        IsWide(cols, from, values) ? &QuantizeRowsKernel<T, true> : &QuantizeRowsKernel<T, false>;
    const std::int64_t groups = rows * CeilDiv(cols, kGroup);
    return Launch(kernel, Blocks(CeilDiv(groups, kThreads / kLanes)), kThreads, stream, from, rows,
                  cols, values, scales);
  });
}

}  // namespace culet::cuda_ops
