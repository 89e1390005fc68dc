// What the host knows of the small-M block-scaled FP8 kernels for Hopper. They compute D^T = B A^T
// ("swap-AB"): 64-row blocks of the weights are wgmma's M, the tokens are its N, so that a token
// costs what it is worth, and K is split over the CTAs of a cluster.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "kernels/sm90/block_scaled.h"

namespace culet::sm90 {

/// The kernel's one argument. Strides of scales are in elements, so either order is served.
struct Fp8SwapParams {
  CUtensorMap weights;      ///< (k, n) bytes, box (128, 64 * warpgroups); see `sliced`
  CUtensorMap activations;  ///< (k, m) bytes, box (128, tokens)
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  void* d = nullptr;
  std::int64_t ldd = 0;
  int scale_a_row = 0;
  int scale_a_block = 0;
  int scale_b_column = 0;
  int scale_b_block = 0;
  int m = 0;
  int n = 0;
  int k_blocks = 0;    ///< of 128
  int loads_each = 0;  ///< stages for each CTA of a cluster; the first `loads_rest` take one more
  int loads_rest = 0;
  int sliced = 0;  ///< 1: the maps are (128, rows, k / 128), and one box brings a stage's k-blocks
  int stages = 0;
  float alpha = 1.0f;
  int early_weights = 0;  ///< 1: the kernel before writes neither the weights nor their scales
};

inline constexpr int kFp8SwapMaxStages = 16;
inline constexpr int kFp8SwapMaxSplits = 8;  ///< the largest portable cluster

/// Where things lie in a CTA's shared memory; `stages` and `splits` are chosen per launch.
struct Fp8SwapLayout {
  static constexpr int kScaleBlocks = 4;   ///< k-blocks whose scales come together
  static constexpr int kScaleBuffers = 4;  ///< such chunks in flight
  static constexpr int kBarriers = 2 * kFp8SwapMaxStages + 2 * kScaleBuffers + 2;

  int stage_bytes;
  int scales_offset;
  int barriers_offset;
  int exchange_offset;
  int total;

  /// Bytes of one k-block's scales: a float for each token, 16 at least (see Fp8SwapScaleIndex).
  static constexpr int ScaleBytes(int tokens) { return (tokens < 16 ? 16 : tokens) * 4; }

  static constexpr Fp8SwapLayout Make(int tokens, int row_groups, int token_groups,
                                      int stage_blocks, int stages, int splits) {
    Fp8SwapLayout l{};
    l.stage_bytes = (row_groups * 64 + tokens) * 128 * stage_blocks;
    l.scales_offset = stages * l.stage_bytes;
    l.barriers_offset = l.scales_offset + kScaleBuffers * kScaleBlocks * ScaleBytes(tokens);
    l.exchange_offset = l.barriers_offset + kBarriers * 8;
    // From each of the other CTAs, 16 bytes a thread for each group of 8 tokens that this one sums.
    const int groups = (tokens / token_groups / 8 + splits - 1) / splits;
    l.total = l.exchange_offset + (splits - 1) * groups * row_groups * token_groups * 128 * 16;
    return l;
  }
};

/// One compiled kernel.
struct Fp8SwapKernel {
  const char*
      id;  ///< rows x tokens x depth of a stage, then "p32" where a product covers 32 tokens
  const void* function;
  int tokens;        ///< wgmma N: columns of D^T a CTA computes
  int row_groups;    ///< consumer warpgroups along the weights' rows, 64 each ...
  int token_groups;  ///< ... and along the tokens
  int stage_blocks;  ///< k-blocks of a stage of the ring
  int min_stages;    ///< unless a stage is used once
  int threads;
  int registers;     ///< a thread, at the start
  int residencies;   ///< bit r: worth running with r CTAs a multiprocessor
  int output_bytes;  ///< of an element of D: 2 is BF16, 4 is F32
  constexpr int rows() const { return 64 * row_groups; }
  constexpr Fp8SwapLayout Layout(int stages, int splits) const {
    return Fp8SwapLayout::Make(tokens, row_groups, token_groups, stage_blocks, stages, splits);
  }
};

/// All kernels of the family.
std::span<const Fp8SwapKernel> Fp8SwapKernels();

struct Fp8SwapLaunch {
  const Fp8SwapKernel* kernel = nullptr;
  Fp8SwapParams params;
  int row_tiles = 0, token_tiles = 0;
  int splits = 1;
  int smem_bytes = 0;
};

/// Stages of the ring that fit beside `residency` CTAs a multiprocessor, at most the k-blocks there
/// are; 0 when the exchange of the sums alone is too large.
int Fp8SwapStages(const Fp8SwapKernel& kernel, int k_blocks, int splits, int residency);

/// Whether `splits` and `residency` leave each CTA k-blocks and enough stages.
bool Fp8SwapFits(const Fp8SwapKernel& kernel, int k_blocks, int splits, int residency);

/// Everything but the stream, made once. `splits` CTAs of a cluster share a tile along K;
/// `residency` is the number of CTAs a multiprocessor shall hold, which sets the stages. False when
/// the shape does not fit (Fp8SwapFits) or a tensor map cannot be made.
bool PlanFp8Swap(const Fp8SwapKernel& kernel, const BlockScaledProblem& problem, int splits,
                 int residency, Fp8SwapLaunch* launch);

/// Puts other operands into a plan: A, its scales and D of the plan's shapes and alignments. False
/// when the driver refuses.
bool RebindFp8Swap(const void* a, const float* scale_a, void* d, float alpha,
                   Fp8SwapLaunch* launch);

/// Loads the kernel on the current device and raises its shared-memory limit; not during a capture.
cudaError_t LoadFp8Swap(const Fp8SwapKernel& kernel);

/// A programmatic dependent launch where the plan says early_weights.
cudaError_t LaunchFp8Swap(const Fp8SwapLaunch& launch, cudaStream_t stream);

}  // namespace culet::sm90
