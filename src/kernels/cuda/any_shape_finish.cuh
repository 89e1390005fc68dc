// Typed elements, and what happens to a tile's sums: parts of K meet, alpha, C, bias, D.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/any_shape.h"

namespace culet::any_shape {

/// Element `index` of an array of F32, F16, BF16 or E4M3, exactly.
__device__ __forceinline__ float LoadElement(const void* data, DataType type, std::int64_t index) {
  switch (type) {
    case DataType::kFloat32:
      return static_cast<const float*>(data)[index];
    case DataType::kFloat16:
      return __half2float(static_cast<const __half*>(data)[index]);
    case DataType::kBfloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
    default:
      return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(data)[index]);
  }
}

/// Rounds once to nearest even; what is too large becomes infinity, in E4M3 448.
__device__ __forceinline__ void StoreElement(void* data, DataType type, std::int64_t index,
                                             float value) {
  switch (type) {
    case DataType::kFloat32:
      static_cast<float*>(data)[index] = value;
      break;
    case DataType::kFloat16:
      static_cast<__half*>(data)[index] = __float2half_rn(value);
      break;
    case DataType::kBfloat16:
      static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16_rn(value);
      break;
    default:
      static_cast<__nv_fp8_storage_t*>(data)[index] =
          __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
      break;
  }
}

/// Nothing waits: the CTA that finishes a tile's last part adds all parts, in their order, so that
/// the bits do not depend on who that is. True in that CTA, with the totals in `sums`.
template <int kThreads, int kSums>
__device__ __forceinline__ bool AddParts(const Problem& p, const WorkOrder::Position& at,
                                         float (&sums)[kSums]) {
  static_assert(kSums % 4 == 0);
  constexpr int kVectors = kSums / 4;
  float4* const parts = reinterpret_cast<float4*>(p.partials) +
                        at.tile * p.order.splits * (kVectors * kThreads) + threadIdx.x;
  float4* const own = parts + static_cast<std::int64_t>(at.split) * (kVectors * kThreads);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    own[i * kThreads] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
  }
  __threadfence();
  __syncthreads();
  const bool completes =
      threadIdx.x == 0 && atomicAdd(p.arrived + at.tile, 1) == p.order.splits - 1;
  if (__syncthreads_or(completes) == 0) return false;
  __threadfence();
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i] = 0;
  constexpr int kTogether = kSums <= 16 ? 4 : 1;  // parts whose loads are under way at a time
#pragma unroll kTogether
  for (int split = 0; split < p.order.splits; ++split) {
    const float4* const part = parts + static_cast<std::int64_t>(split) * (kVectors * kThreads);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const float4 four = __ldcg(part + i * kThreads);
      sums[4 * i] += four.x;
      sums[4 * i + 1] += four.y;
      sums[4 * i + 2] += four.z;
      sums[4 * i + 3] += four.w;
    }
  }
  if (threadIdx.x == 0) p.arrived[at.tile] = 0;
  return true;
}

/// Bytes of shared memory that Finish takes for a tile. The odd pitch keeps columns off one bank.
constexpr int FinishBytes(int tile_m, int tile_n) { return tile_m * (tile_n + 1) * 4; }

/// D = alpha * sums + beta * C + bias. `coordinate(i)` is (row, column) of a thread's sums[i] in
/// the tile that starts at (row0, col0). Through `smem`, so that neighbouring threads write
/// neighbouring elements in either order; all threads must be past their last use of it, and it is
/// free again after the next __syncthreads().
template <int kThreads, int kTileM, int kTileN, int kSums, class Coordinate>
__device__ __forceinline__ void Finish(const Problem& p, const WorkOrder::Position& at,
                                       float (&sums)[kSums], Coordinate coordinate, float* smem) {
  static_assert(kSums * kThreads == kTileM * kTileN);
  if (p.order.splits > 1 && !AddParts<kThreads>(p, at, sums)) return;
  constexpr int kPitch = kTileN + 1;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int2 in_tile = coordinate(i);
    smem[in_tile.x * kPitch + in_tile.y] = sums[i];
  }
  __syncthreads();
  const int row0 = at.tile_m * kTileM, col0 = at.tile_n * kTileN;
  const bool along_row = p.d.col_stride == 1;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kTileM * kTileN; i += kThreads) {
    const int in_row = along_row ? i / kTileN : i % kTileM;
    const int in_col = along_row ? i % kTileN : i / kTileM;
    if (in_row >= p.m - row0 || in_col >= p.n - col0) continue;
    const std::int64_t row = row0 + in_row, col = col0 + in_col;
    const auto index = [&](const Output& of) { return row * of.row_stride + col * of.col_stride; };
    float value = p.alpha * smem[in_row * kPitch + in_col];
    if (p.beta != 0.0f) value = fmaf(p.beta, LoadElement(p.c.data, p.c.type, index(p.c)), value);
    if (p.bias.data != nullptr) value += LoadElement(p.bias.data, p.bias.type, index(p.bias));
    StoreElement(p.d.data, p.d.type, index(p.d), value);
  }
}

}  // namespace culet::any_shape
