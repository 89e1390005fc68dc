// Sixteen lanes make the codes and the scale of a group of 128.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

constexpr int kQuantGroup = 128;
constexpr int kQuantEach = 8;  // elements of a group that one lane takes
constexpr int kQuantLanes = kQuantGroup / kQuantEach;

/// The scale of elements whose largest magnitude has these bits.
__device__ __forceinline__ float ScaleOfLargest(unsigned most) {
  constexpr float kLargestE4m3 = 448.0f;
  if (most >= 0x7F800000u) return NotANumber();
  const float scale = __fdiv_rn(__uint_as_float(most), kLargestE4m3);
  if (scale == 0.0f) return most == 0 ? 1.0f : __uint_as_float(1u);
  return scale;
}

/// The codes of this lane's elements, four in each of `packed`; returns the scale of the group. All
/// lanes of the warp take part, those beyond a row's end with zeros.
__device__ __forceinline__ float QuantizeGroup(const float (&v)[kQuantEach],
                                               unsigned (&packed)[2]) {
  // Magnitudes compare as integers, and NaN > infinity > the rest.
  unsigned most = 0;
#pragma unroll
  for (const float value : v) most = max(most, __float_as_uint(value) & 0x7FFFFFFFu);
#pragma unroll
  for (int offset = kQuantLanes / 2; offset > 0; offset /= 2) {
    most = max(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  const float scale = ScaleOfLargest(most);
  packed[0] = packed[1] = 0;
#pragma unroll
  for (int i = 0; i < kQuantEach; i += 2) {
    const float2 pair = make_float2(__fdiv_rn(v[i], scale), __fdiv_rn(v[i + 1], scale));
    packed[i / 4] |=
        static_cast<unsigned>(__nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3))
        << (8 * (i % 4));
  }
  return scale;
}

/// Stores them for elements `col` to `col + 7` of a row of `cols`, a multiple of 8.
__device__ __forceinline__ void StoreCodes(const unsigned (&packed)[2], float scale,
                                           std::int64_t row, std::int64_t col, std::int64_t cols,
                                           std::uint8_t* codes, float* scales) {
  *reinterpret_cast<uint2*>(codes + row * cols + col) = make_uint2(packed[0], packed[1]);
  if (col % kQuantGroup == 0) {
    scales[row * ((cols + kQuantGroup - 1) / kQuantGroup) + col / kQuantGroup] = scale;
  }
}

}  // namespace culet::cuda_ops
