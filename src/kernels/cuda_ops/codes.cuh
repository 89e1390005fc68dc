// Elements of weights that are codes, and their scales, one by one.
#pragma once

#include <cstdint>

#include "culet/types.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

/// A code of 4 bits as a number.
__device__ __forceinline__ float NumberOfCode(std::uint32_t code, DataType type) {
  if (type == DataType::kUint4) return static_cast<float>(code);
  const std::uint32_t exponent = code >> 1 & 3, fraction = code & 1;  // E2M1
  const float halves =
      static_cast<float>(exponent == 0 ? fraction : (2 + fraction) << (exponent - 1));
  return (code & 8) != 0 ? -0.5f * halves : 0.5f * halves;
}

/// A code of UE8M0.
__device__ __forceinline__ float PowerOfCode(std::uint32_t code) {
  if (code == 0xFF) return NotANumber();
  return __uint_as_float(code == 0 ? 0x00400000u : code << 23);  // 2^-127 is subnormal
}

/// A scale or a zero point: float32, float16, bfloat16, uint4 or UE8M0.
__device__ __forceinline__ float ScaleOf(const void* scales, DataType type, std::int64_t index) {
  switch (type) {
    case DataType::kFloat32:
      return static_cast<const float*>(scales)[index];
    case DataType::kFloat16:
      return ToFloat(static_cast<const __half*>(scales)[index]);
    case DataType::kBfloat16:
      return ToFloat(static_cast<const __nv_bfloat16*>(scales)[index]);
    case DataType::kUint4:
      return static_cast<float>(
          static_cast<const std::uint8_t*>(scales)[index / 2] >> (index % 2 * 4) & 15);
    default:
      break;
  }
  return PowerOfCode(static_cast<const std::uint8_t*>(scales)[index]);
}

/// Eight codes of a row from element `at` on, a multiple of 8, as numbers. Those from `count` on
/// are 0.
__device__ __forceinline__ void LoadCodes(const void* row, DataType type, std::int64_t at,
                                          std::int64_t count, float (&to)[8]) {
  if (type == DataType::kInt8) {
    const auto* const codes = static_cast<const std::int8_t*>(row) + at;
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = at + i < count ? static_cast<float>(codes[i]) : 0.0f;
    return;
  }
  if (type == DataType::kFloat8_e4m3) {
    const auto* const codes = static_cast<const __nv_fp8_e4m3*>(row) + at;
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = at + i < count ? ToFloat(codes[i]) : 0.0f;
    return;
  }
  const auto* const pairs = static_cast<const std::uint8_t*>(row) + at / 2;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const std::uint32_t pair = at + i < count ? pairs[i / 2] : 0;  // rows have an even length
    to[i] = at + i < count ? NumberOfCode(pair & 15, type) : 0.0f;
    to[i + 1] = at + i < count ? NumberOfCode(pair >> 4, type) : 0.0f;
  }
}

/// Bytes of a row.
__device__ __forceinline__ std::int64_t RowBytes(DataType type, std::int64_t cols) {
  return type == DataType::kInt8 ? cols : cols / 2;
}

}  // namespace culet::cuda_ops
