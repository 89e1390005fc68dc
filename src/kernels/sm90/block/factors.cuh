// Scales of rows and columns of a large-M kernel's tile, loaded while the tile is multiplied.
#pragma once

#include <cstdint>

#include "kernels/sm90/product/epilogue.h"
#include "kernels/sm90/product/output.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// The scales of a warpgroup's rows, then of its columns, in shared memory of its own. Missing
/// scales are ones. Their loads start when the tile begins and are complete when its sums are. A
/// tile that loaded them at its end would wait for L2 before it could be stored.
template <class C>
struct BlockFactors {
  const EpilogueParams& e;
  uint8_t* all;  ///< of all warpgroups
  const int& group;

  /// Starts to load those of a tile, from `row` and `column` on. First waits until no warp reads
  /// those of the previous tile.
  __device__ __forceinline__ void BringScales(int row, int column, int m, int n) {
    NamedSync(2 + group, 128);
    float* const memory = Memory();
#pragma unroll
    for (int i = threadIdx.x % 128; i < C::kFactors; i += 128) {
      const int j = i - C::kBlocksM * 64;
      if (j < 0)
        BringOne(e.scale_a, std::int64_t{min(row + i, m - 1)} * e.scale_a_step, memory + i);
      else
        BringOne(e.scale_b, std::int64_t{min(column + j, n - 1)} * e.scale_b_step, memory + i);
    }
  }

  /// Waits until all have arrived, for the whole warpgroup.
  __device__ __forceinline__ void Wait() {
    CopyAsyncWaitAll();
    NamedSync(2 + group, 128);
  }

  /// Multiplies a thread's sums by alpha and the scales: kCount columns from `begin` on, of rows
  /// `row` and row + 8 of the warpgroup.
  template <int kCount>
  __device__ __forceinline__ void Multiply(float* sum, int row, int begin, int lane) {
    const float* const memory = Memory();
    float x[2] = {e.alpha * memory[row], e.alpha * memory[row + 8]};
    const float* const columns = memory + C::kBlocksM * 64 + begin;
    if (e.scale_b_step == 0) {
      x[0] *= columns[0], x[1] *= columns[0];
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) sum[i] *= x[i / 2 % 2];
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount / 8; ++i) {
      const float2 y = *reinterpret_cast<const float2*>(columns + i * 8 + lane % 4 * 2);
      sum[i * 4] = sum[i * 4] * x[0] * y.x;
      sum[i * 4 + 1] = sum[i * 4 + 1] * x[0] * y.y;
      sum[i * 4 + 2] = sum[i * 4 + 2] * x[1] * y.x;
      sum[i * 4 + 3] = sum[i * 4 + 3] * x[1] * y.y;
    }
  }

  /// Loads the bias over the scales, once these have been used. A missing bias is zeros.
  __device__ __forceinline__ void BringBias(int row, int column, int m, int n) {
    NamedSync(2 + group, 128);
    float* const memory = Memory();
#pragma unroll 1
    for (int i = threadIdx.x % 128; i < C::kFactors; i += 128) {
      const int j = i - C::kBlocksM * 64;
      const bool of_row = j < 0;
      const std::int64_t index = of_row ? std::int64_t{min(row + i, m - 1)} * e.bias_row_step
                                        : std::int64_t{min(column + j, n - 1)} * e.bias_step;
      memory[i] = of_row == (e.bias_row_step != 0) ? LoadOutput(e.bias, e.bias_type, index) : 0.0f;
    }
    NamedSync(2 + group, 128);
  }

  /// Adds the bias; arguments as Multiply's.
  template <int kCount>
  __device__ __forceinline__ void Add(float* sum, int row, int begin, int lane) {
    const float* const memory = Memory();
    const float x[2] = {memory[row], memory[row + 8]};
    const float* const columns = memory + C::kBlocksM * 64 + begin + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kCount / 8; ++i) {
      const float2 y = *reinterpret_cast<const float2*>(columns + i * 8);
      sum[i * 4] += x[0] + y.x;
      sum[i * 4 + 1] += x[0] + y.y;
      sum[i * 4 + 2] += x[1] + y.x;
      sum[i * 4 + 3] += x[1] + y.y;
    }
  }

 private:
  __device__ __forceinline__ float* Memory() const {
    return reinterpret_cast<float*>(all) + group * C::kFactors;
  }
  __device__ __forceinline__ void BringOne(const float* scales, std::int64_t index, float* to) {
    if (scales != nullptr)
      CopyAsync<4>(SharedAddress(to), scales + index);
    else
      *to = 1.0f;
  }
};

}  // namespace culet::sm90
