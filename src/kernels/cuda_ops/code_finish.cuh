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

/// The CTA's sums of its part of K, in `smem`, where those of the next warp are `warp_floats`
/// further; writes D once all parts are there. Each warp writes its own piece of `smem` first.
template <class C>
__device__ __forceinline__ void FinishCodes(const CodeProductParams& p,
                                            const float (&own)[C::kSubTiles][C::kOctets][4],
                                            int row0, int token0, int tokens, int split,
                                            float* smem, int warp_floats) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  float* const of_warp = smem + warp * warp_floats;
#pragma unroll
  for (int i = 0; i < C::kSubTiles; ++i) {
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int token = 8 * t + lane % 4 * 2 + j % 2, row = 16 * i + lane / 4 + j / 2 * 8;
        of_warp[token * C::kSumPitch + row] = own[i][t][j];
      }
    }
  }
  __syncthreads();
  const int elements = tokens * C::kRows;
  const auto each = [&](auto function) {
    for (int i = thread; i < elements; i += C::kThreads) function(i, i / C::kRows, i % C::kRows);
  };
  const auto sum_of = [&](int token, int row) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < C::kWarps; ++w) {
      sum += smem[w * warp_floats + token * C::kSumPitch + row];
    }
    return sum;
  };
  // D's elements, of sums(token, row of the CTA).
  const auto store = [&](auto of) {
    if constexpr (C::kGates) {
      if (p.gated) {
        constexpr int kColumns = C::kRows / 2;
        const int up = p.halves ? p.n / 2 : 8;
        for (int i = thread; i < tokens * kColumns; i += C::kThreads) {
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
    each([&](int, int token, int row) {
      if (row0 + row >= p.n) return;
      const float value = ValueOfSum(p, token0 + token, row0 + row, of(token, row));
      StoreValue(p, token0 + token, row0 + row, value);
    });
  };
  if (p.splits == 1) {
    store(sum_of);
    return;
  }
  // Nothing waits: the CTA that finishes last adds all parts, in their order.
  constexpr int kPart = C::kRows * C::kTokens;
  const std::int64_t tile = std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
  float* const parts = p.partials + tile * p.splits * kPart;
  each([&](int i, int token, int row) { parts[split * kPart + i] = sum_of(token, row); });
  __threadfence();
  __syncthreads();
  const bool completes = thread == 0 && atomicAdd(p.arrived + tile, 1) == p.splits - 1;
  if (__syncthreads_or(completes ? 1 : 0) == 0) return;
  __threadfence();
  store([&](int token, int row) {
    float sum = 0;
    for (int s = 0; s < p.splits; ++s) sum += __ldcg(parts + s * kPart + token * C::kRows + row);
    return sum;
  });
  if (thread == 0) p.arrived[tile] = 0;
}

}  // namespace culet::cuda_ops
