// What the second producer of a small-M kernel brings: the scales of each k-block, or what the
// epilogue multiplies and adds.
#pragma once

#include <cstdint>

#include "kernels/sm90/product/output.cuh"
#include "kernels/sm90/swap/config.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// The other producers of block-scaled kernels: multiply the scales of tokens and weights, four
/// k-blocks at a time.
template <class C>
struct SwapScales {
  using L = SwapLayout;
  static constexpr int kMyGroups = C::kTokens / C::kScaleWarps / 8;
  /// Chunks on their way to registers: with one, its latency (some 1400 clocks when memory is busy)
  /// sets the pace of kernels that need a k-block less than 350 clocks.
  static constexpr int kSets = kMyGroups <= 8 ? 3 : C::kReallocate ? 1 : 2;
  static_assert(L::kScaleBlocks == 4);
  const SwapParams& p;
  const float* from_a;
  const float* from_b;
  int count, tokens_left, my_block, my_token, my_group;
  float token_scale[kSets][kMyGroups], weight_scale[kSets];

  // Lane l serves block l % 4 of a chunk and token l / 4 of every group of 8.
  __device__ __forceinline__ SwapScales(const SwapParams& p, int first, int count, const Tile& tile,
                                        int part, int lane)
      : p(p), count(count), my_block(lane % 4), my_token(lane / 4), my_group(part * kMyGroups) {
    const int token0 = tile.row + my_group * 8;
    tokens_left = tile.rows - my_group * 8 - my_token;
    from_a = p.scale_a + int64_t(token0 + my_token) * p.scale_a_row +
             int64_t(first + my_block) * p.scale_a_block;
    from_b = p.scale_b + int64_t(tile.column / 128) * p.scale_b_column +
             int64_t(first + my_block) * p.scale_b_block;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      weight_scale[set] = 0.0f;
#pragma unroll
      for (int j = 0; j < kMyGroups; ++j) token_scale[set][j] = 0.0f;
    }
  }

  __device__ __forceinline__ void Fetch(int chunk, float (&tokens)[kMyGroups], float& weight) {
    if (chunk * 4 + my_block >= count) return;
    weight = __ldg(from_b + int64_t(chunk * 4) * p.scale_b_block);
#pragma unroll
    for (int j = 0; j < kMyGroups; ++j)
      if (8 * j < tokens_left)
        tokens[j] =
            __ldg(from_a + int64_t(8 * j) * p.scale_a_row + int64_t(chunk * 4) * p.scale_a_block);
  }

  /// Asks for the first chunks.
  __device__ __forceinline__ void Begin() {
#pragma unroll
    for (int set = 0; set < kSets; ++set) Fetch(set, token_scale[set], weight_scale[set]);
  }

  /// After Begin.
  __device__ __forceinline__ void Run(const SwapShared<C>& shared) {
#pragma unroll 1
    for (int first = 0; first * 4 < count; first += kSets) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        const int chunk = first + set;
        if (chunk * 4 >= count) break;
        const int buffer = chunk % L::kScaleBuffers;
        if (chunk >= L::kScaleBuffers)
          BarrierWait(&shared.scales_empty[buffer], (chunk / L::kScaleBuffers & 1) ^ 1);
        float* const to = shared.scale(buffer, my_block);
#pragma unroll
        for (int j = 0; j < kMyGroups; ++j)
          to[SwapScaleIndex(my_group + j, my_token)] = token_scale[set][j] * weight_scale[set];
        BarrierArrive(&shared.scales_full[buffer]);
        Fetch(chunk + kSets, token_scale[set], weight_scale[set]);
      }
    }
  }
};

/// Of kernels whose k-blocks have no scales.
template <class C>
struct SwapNoScales {
  __device__ __forceinline__ SwapNoScales(const SwapParams&, int, int, const Tile&, int, int) {}
  __device__ __forceinline__ void Begin() {}
  __device__ __forceinline__ void Run(const SwapShared<C>&) {}
};

/// One warp puts alpha, the scales and the bias of the CTA's tokens and rows, as FP32, where the
/// epilogue finds them, while the k-blocks stream in.
template <class C>
__device__ __forceinline__ void SwapBringFactors(const SwapParams& p, const SwapShared<C>& shared,
                                                 const Tile& tile, int lane) {
  const EpilogueParams& e = p.epilogue;
#pragma unroll 1
  for (int t = lane; t < C::kTokens; t += 32) {
    const int token = tile.row + t;
    const bool inside = t < tile.rows;
    float factor = e.alpha, bias = 0.0f;
    if (e.scale_a != nullptr && inside)
      factor *= __ldg(e.scale_a + int64_t(token) * e.scale_a_step);
    if (e.bias != nullptr && e.bias_row_step != 0 && inside)
      bias = LoadOutput(e.bias, e.bias_type, int64_t(token) * e.bias_row_step);
    shared.token_factors()[t] = factor;
    shared.token_bias()[t] = bias;
  }
#pragma unroll 1
  for (int r = lane; r < C::kRows; r += 32) {
    const int row = tile.column + r;
    const bool inside = row < p.n;
    float factor = 1.0f, bias = 0.0f;
    if (e.scale_b != nullptr && inside) factor = __ldg(e.scale_b + int64_t(row) * e.scale_b_step);
    if (e.bias != nullptr && e.bias_row_step == 0 && inside)
      bias = LoadOutput(e.bias, e.bias_type, int64_t(row) * e.bias_step);
    shared.row_factors()[r] = factor;
    shared.row_bias()[r] = bias;
  }
}

}  // namespace culet::sm90
