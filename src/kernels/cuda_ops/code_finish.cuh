// What follows the sums of a product by codes: those of the warps, then of the parts of K, in their
// order, and D.
#pragma once

#include "kernels/cuda_ops/code_product.h"
#include "kernels/cuda_ops/codes.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

/// alpha times the sum of a row, with what is added to it.
__device__ __forceinline__ float ValueOfSum(const CodeProductParams& p, int token, int row,
                                            float sum) {
  float value = p.alpha * sum;
  if (p.c != nullptr && p.beta != 0.0f) {
    value = fmaf(p.beta, ScaleOf(p.c, p.c_type, token * p.c_row + row * p.c_col), value);
  }
  if (p.bias != nullptr) {
    value += ScaleOf(p.bias, p.bias_type, token * p.bias_row + row * p.bias_col);
  }
  return value;
}

/// One element of D.
__device__ __forceinline__ void StoreValue(const CodeProductParams& p, int token, int col,
                                           float value) {
  const std::int64_t at = token * p.d_row + col * p.d_col;
  if (p.d_type == DataType::kFloat32) {
    static_cast<float*>(p.d)[at] = value;
  } else if (p.d_type == DataType::kFloat16) {
    Round(value, static_cast<__half*>(p.d) + at);
  } else {
    Round(value, static_cast<__nv_bfloat16*>(p.d) + at);
  }
}

/// Writes a warp's sums to a piece of shared memory, from row `first_row` of the CTA on.
template <class C>
__device__ __forceinline__ void WriteSums(const float (&own)[C::kSubTiles][C::kOctets][4],
                                          int first_row, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < C::kSubTiles; ++i) {
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int token = 8 * t + lane % 4 * 2 + j % 2, row = 16 * i + lane / 4 + j / 2 * 8;
        to[token * C::kSumPitch + first_row + row] = own[i][t][j];
      }
    }
  }
}

/// D's elements of a CTA, of which thread `thread` of `threads` writes its share. `of` returns
/// the sum of (token, row of the CTA).
template <class C, class Sums>
__device__ __forceinline__ void StoreSums(const CodeProductParams& p, int row0, int token0,
                                          int tokens, int thread, int threads, Sums of) {
  if constexpr (C::kGates) {
    if (p.gated) {
      constexpr int kColumns = C::kRows / 2;
      const int up = p.halves ? p.n / 2 : 8;
      for (int i = thread; i < tokens * kColumns; i += threads) {
        const int token = i / kColumns, column = i % kColumns;
        const int local = column / 8 * 16 + column % 8;  // of the gate; up's is 8 further
        if (row0 + local >= p.n) continue;
        const int row = p.halves ? row0 / 2 + column : row0 + local;
        const float gate = ValueOfSum(p, token0 + token, row, of(token, local));
        const float value = ValueOfSum(p, token0 + token, row + up, of(token, local + 8));
        StoreValue(p, token0 + token, row0 / 2 + column, Silu(gate) * value);
      }
      return;
    }
  }
  for (int i = thread; i < tokens * C::kRows; i += threads) {
    const int token = i / C::kRows, row = i % C::kRows;
    if (row0 + row >= p.n) continue;
    const float value = ValueOfSum(p, token0 + token, row0 + row, of(token, row));
    StoreValue(p, token0 + token, row0 + row, value);
  }
}

/// The CTA's sums of its part of K: kSlices of them are in `smem`, `slice_floats` one from the
/// next, to one of which a warp adds its rows, from `first_row` on. Writes D once all parts are
/// there.
template <class C, int kSlices>
__device__ __forceinline__ void FinishSlices(const CodeProductParams& p,
                                             const float (&own)[C::kSubTiles][C::kOctets][4],
                                             int row0, int token0, int tokens, int split,
                                             float* smem, int slice_floats, int slice,
                                             int first_row) {
  const int thread = static_cast<int>(threadIdx.x);
  WriteSums<C>(own, first_row, smem + slice * slice_floats);
  __syncthreads();
  const auto sum_of = [&](int token, int row) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kSlices; ++i) sum += smem[i * slice_floats + token * C::kSumPitch + row];
    return sum;
  };
  if (p.splits == 1) {
    StoreSums<C>(p, row0, token0, tokens, thread, C::kThreads, sum_of);
    return;
  }
  // Nothing waits: the CTA that finishes last adds all parts, in their order.
  constexpr int kPart = C::kRows * C::kTokens;
  const std::int64_t tile = std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
  float* const parts = p.partials + tile * p.splits * kPart;
  for (int i = thread; i < tokens * C::kRows; i += C::kThreads) {
    parts[split * kPart + i] = sum_of(i / C::kRows, i % C::kRows);
  }
  __threadfence();
  __syncthreads();
  const bool completes = thread == 0 && atomicAdd(p.arrived + tile, 1) == p.splits - 1;
  if (__syncthreads_or(completes ? 1 : 0) == 0) return;
  __threadfence();
  StoreSums<C>(p, row0, token0, tokens, thread, C::kThreads, [&](int token, int row) {
    float sum = 0;
    for (int s = 0; s < p.splits; ++s) sum += __ldcg(parts + s * kPart + token * C::kRows + row);
    return sum;
  });
  if (thread == 0) p.arrived[tile] = 0;
}

/// Each warp has all rows of the CTA, and a piece of `smem`.
template <class C>
__device__ __forceinline__ void FinishCodes(const CodeProductParams& p,
                                            const float (&own)[C::kSubTiles][C::kOctets][4],
                                            int row0, int token0, int tokens, int split,
                                            float* smem, int warp_floats) {
  FinishSlices<C, C::kWarps>(p, own, row0, token0, tokens, split, smem, warp_floats,
                             static_cast<int>(threadIdx.x) / 32, 0);
}

}  // namespace culet::cuda_ops
