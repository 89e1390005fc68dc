// The first large-M kernel of the history in docs/hopper-lessons.md, whole in one type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/sm90/block/kernel.cuh"

namespace culet::sm90 {

/// D = A x B of E4M3 with block scales, in BF16: a producer warpgroup, two consumers side by side
/// along N, and a cluster of two CTAs that share B.
struct GemmUniversalSm90
    : BlockConfig<SideBySide(
                      {.tile_m = 128, .tile_n = 224, .stages = 3, .cluster_m = 2, .slabs = 2}),
                  Fp8Block, PlainEpilogue<OutputType::kBf16>> {
  using Ta = __nv_fp8_e4m3;
  using Tb = __nv_fp8_e4m3;
  using Tc = __nv_bfloat16;
  static constexpr int CTA_M = kTileM, CTA_N = kTileN, CTA_K = Format::kBlockK;
  static constexpr int CTA_SIZE = kThreads;
  static constexpr int Stages = kStages;
  static_assert(CTA_M == 128 && CTA_N == 224 && CTA_K == 128 && CTA_SIZE == 384 && Stages == 3);
};

}  // namespace culet::sm90
