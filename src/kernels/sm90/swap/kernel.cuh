// Products with few tokens: D^T = B A^T on a 64G x N tile, K split over a cluster.
//
// Bound by weight bandwidth, so weight loads start before anything else (under programmatic
// dependent launch before griddepcontrol.wait). A CTA's shared memory is one deep ring, and CTAs
// are small enough that several share an SM and the next kernel's CTAs fit beside this one's.
//
// Warps: 4G consumers (swap/multiply.cuh); one that loads both operands; one that brings scales
// (swap/scales.cuh), and loads the first activations where the weights came early. A k-block is 128
// bytes deep, whatever the format. The partial sums of a cluster's CTAs meet in shared memory
// through st.async (swap/finish.cuh); each sum is taken in rank order, so results repeat bit for
// bit.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "kernels/sm90/swap/config.cuh"
#include "kernels/sm90/swap/finish.cuh"
#include "kernels/sm90/swap/multiply.cuh"
#include "kernels/sm90/swap/scales.cuh"
#include "sm90/descriptor.h"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::sm90 {

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinCtas)
    SwapGemm(const __grid_constant__ SwapParams p) {
  CULET_DYNAMIC_SHARED(shared_base);
  const int stages = p.stages;
  const SwapShared<C> shared(shared_base, stages);
  const int warp = WarpUniform(threadIdx.x / 32), lane = threadIdx.x % 32;
  // A cluster's CTAs: those that split K side by side, for each that shares scales.
  const int splits = static_cast<int>(ClusterSize()) / C::kSharers;
  const int in_cluster = static_cast<int>(ClusterRank());
  const int sharer = C::kSharers > 1 ? in_cluster / splits : 0, rank = in_cluster - sharer * splits;
  const bool clustered = C::kSharers > 1 || splits > 1;
  const Tile tile = SwapTile<C>(p, sharer);
  // In k-blocks; the last load may hold fewer than a stage does, padded with zeros.
  const int loads = p.loads_each + (rank < p.loads_rest ? 1 : 0);
  const int first = (rank * p.loads_each + min(rank, p.loads_rest)) * C::kStageBlocks;
  const int count = min(loads * C::kStageBlocks, p.k_blocks - first);
  constexpr int kTmaWarp = C::kConsumers / 32, kScaleWarp = kTmaWarp + 1;
  // Boxes end with the matrix: stage rows past it keep stale data, which only affects elements of D
  // that are not stored.
  const int rows = min(C::kRows, p.n - tile.column), tokens = min(C::kTokens, tile.rows);
  const uint32_t stage_bytes = (rows + tokens) * kBlockBytes * C::kStageBlocks;

  // Under programmatic dependent launch, weights are loaded before the wait for the kernel before.
  // Otherwise load the operands that all CTAs share first: DRAM serves outstanding requests in any
  // order, and later requests queue behind the weights of all stages (3 us measured).
  const bool early_weights = p.early_weights != 0;
  // `whole`: the box has all of a tile's kTileRows, from `row` on.
  const auto load = [&]<int kTileRows>(uint8_t* to, const CUtensorMap* map, bool whole,
                                       uint64_t* full, int i, int row, auto... policy) {
    const int block = first + i * C::kStageBlocks;
    if (C::kStageBlocks > 1 && p.sliced) {
      TmaLoad3(to, map, full, 0, row, block, policy...);
      if (whole) return;
#pragma unroll
      for (int j = 1; j < C::kStageBlocks; ++j)
        TmaLoad3(to + j * kTileRows * kBlockBytes, map, full, 0, row, block + j, policy...);
    } else {
#pragma unroll
      for (int j = 0; j < C::kStageBlocks; ++j)
        TmaLoad(to + j * kTileRows * kBlockBytes, map, full, (block + j) * kBlockBytes, row,
                policy...);
    }
  };
  const CUtensorMap* const activations = tokens < C::kTokens ? &p.activations_rest : &p.activations;
  const CUtensorMap* const weights = rows < C::kRows ? &p.weights_rest : &p.weights;
  const auto load_activations = [&](int stage, int i) {
    load.template operator()<C::kTokens>(shared.activations(stage), activations,
                                         tokens == C::kTokens, &shared.full[stage], i, tile.row);
  };
  // Weights are read once (or by neighbouring CTAs together, with several tiles of tokens) and must
  // not evict anything else from L2.
  const auto load_weights = [&](int stage, int i) {
    load.template operator()<C::kRows>(shared.weights(stage), weights, rows == C::kRows,
                                       &shared.full[stage], i, tile.column, EvictFirst());
  };
  const auto load_stage = [&](int i) {
    BarrierArriveExpect(&shared.full[i], stage_bytes);
    if (!early_weights) load_activations(i, i);
    load_weights(i, i);
  };
  // Issue the first load once its barrier exists; other warps prepare the rest meanwhile. An `else`
  // would place its code after theirs, and code is fetched from memory. A branch on the lane
  // instead of elect.sync would wrap each TMA instruction in a loop over lanes.
  const int first_loads = min(stages, loads);
  if (warp == kTmaWarp && ElectOne()) {
    BarrierInit(&shared.full[0], FullArrivals());
    BarrierInitFence();
    load_stage(0);
  }
  if (warp == kScaleWarp && ElectOne()) {  // beside the first load, not ahead of it
    PrefetchTensorMap(weights);
    PrefetchTensorMap(activations);
  }
  if (warp < 2 && lane == 0) {
    if (warp == 0) {
#pragma unroll
      for (int i = 0; i < kSwapMaxStages; ++i)
        BarrierInit(&shared.empty[i], EmptyArrivals(C::kConsumers / 32, 1));
    } else {
#pragma unroll
      for (int i = 1; i < kSwapMaxStages; ++i) BarrierInit(&shared.full[i], FullArrivals());
#pragma unroll
      for (int i = 0; i < SwapLayout::kScaleBuffers; ++i) {
        BarrierInit(&shared.scales_full[i], 32 * C::kScaleWarps);
        BarrierInit(&shared.scales_empty[i], C::kConsumers / 32);
      }
      BarrierInit(shared.exchange_full, C::kWarpgroups);
      if constexpr (C::kQuantises) BarrierInit(shared.largest_full, C::kWarpgroups);
    }
    BarrierInitFence();
  }
  const bool scale_warp = warp >= kScaleWarp && warp < kScaleWarp + C::kScaleWarps;
  using Scales = std::conditional_t<C::kScaled, SwapScales<C>, SwapNoScales<C>>;
  Scales scales(p, first, count, tile, warp - kScaleWarp, lane);
  if (scale_warp && !early_weights) scales.Begin();
  __syncthreads();
  // Says that this CTA's barriers are ready for the others' sums; waited for before those are sent.
  if (clustered) ClusterArriveRelaxed();
  if (warp >= kTmaWarp) {
    if constexpr (C::kReallocate) RegistersDown<C::kProducerRegisters>();
    if (scale_warp) {
      GridDependencyWait();
      // Not before the wait: the next kernel loads its weights early, and only this one, not those
      // before it, is known to leave them alone.
      if constexpr (!C::kLateTrigger) GridDependencyLaunch();
      if (early_weights) {
        scales.Begin();
        if (warp == kScaleWarp && ElectOne()) {
#pragma unroll 1
          for (int i = 0; i < first_loads; ++i) load_activations(i, i);
        }
      }
      __syncwarp();
      if constexpr (C::kGeneral) {
        if (warp == kScaleWarp) SwapBringFactors<C>(p, shared, tile, lane);
        if constexpr (!C::kScaled) BarrierArrive(&shared.scales_full[0]);
      }
      scales.Run(shared);
    } else if (warp == kTmaWarp && ElectOne()) {
#pragma unroll 1
      for (int i = 1; i < first_loads; ++i) load_stage(i);
      GridDependencyWait();
      StageCursor at{0, 1};
#pragma unroll 1
      for (int i = stages; i < loads; ++i) {
        BarrierWait(&shared.empty[at.stage], at.parity ^ 1);
        BarrierArriveExpect(&shared.full[at.stage], stage_bytes);
        load_activations(at.stage, i);
        load_weights(at.stage, i);
        at.Advance(stages);
      }
      if constexpr (C::kLateTrigger) GridDependencyLaunch();
    }
    __syncwarp();
    if (clustered) ClusterWait();
    return;
  }
  if constexpr (C::kReallocate) RegistersUp<C::kConsumerRegisters>();

  float sum[C::kRegs];
#pragma unroll
  for (int i = 0; i < C::kRegs; ++i) sum[i] = 0.0f;
  const int warpgroup = warp / 4;
  if constexpr (C::kDirect) {
    SwapDirect<C>(sum, shared, stages, loads, warpgroup, lane);
  } else {
    StageCursor at;
    using L = SwapLayout;
#pragma unroll 1
    for (int chunk = 0; chunk * 4 < count; ++chunk) {
      const int buffer = chunk % L::kScaleBuffers;
      if constexpr (C::kScaled)
        BarrierWait(&shared.scales_full[buffer], chunk / L::kScaleBuffers & 1);
      const int left = min(4, count - chunk * 4);
      int block = 0;
      if constexpr (C::kTurns > 1) {
        if (left >= 3 + warpgroup) {
          SwapBlocks<C, 2>(sum, shared, at, shared.scale(buffer, warpgroup), stages, warpgroup,
                           warpgroup, lane);
        } else if (left > warpgroup) {
          SwapBlocks<C, 1>(sum, shared, at, shared.scale(buffer, warpgroup), stages, warpgroup,
                           warpgroup, lane);
        }
        block = left;
      } else if constexpr (C::kUnroll > 1) {
#pragma unroll 1
        for (; block + C::kUnroll <= left; block += C::kUnroll)
          SwapBlocks<C, C::kUnroll>(sum, shared, at, shared.scale(buffer, block), stages, warpgroup,
                                    0, lane);
      }
      {
#pragma unroll 1
        for (; block < left; ++block)
          SwapBlocks<C, 1>(sum, shared, at, shared.scale(buffer, block), stages, warpgroup,
                           block % C::kStageBlocks, lane);
      }
      if constexpr (C::kScaled)
        if (lane == 0) BarrierArrive(&shared.scales_empty[buffer]);
    }
  }
  __syncwarp();
  if (clustered) ClusterWait();

  if constexpr (C::kTurns == 1) {
    SwapFinish<C>(p, shared, sum, rank, splits, sharer, tile, warp, lane);
  } else {
    float total[C::kOwnTokens / 2];
    SwapSumTurns<C>(shared, sum, total, warpgroup);
    SwapFinish<C>(p, shared, total, rank, splits, sharer, tile, warp, lane);
  }
}

template <class C>
SwapKernel MakeSwap(const SwapInstance& instance) {
  return {.instance = instance,
          .function = reinterpret_cast<const void*>(&SwapGemm<C>),
          .format = &C::Policy::kInfo,
          .layout = C::kLayout,
          .epilogue = C::kEpilogue,
          .output = C::kOutput,
          .min_stages = C::kMinStages,
          .threads = C::kThreads};
}

/// The kernels of a list.
template <class Policy, class List, EpilogueKind kEpilogue, OutputType kOutput = OutputType::kBf16>
std::span<const SwapKernel> SwapInstances() {
  constexpr int kCount = static_cast<int>(std::size(List::kAll));
  static const auto kernels = []<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    return std::array<SwapKernel, kCount>{
        MakeSwap<SwapConfig<Policy, List, kIndex, kEpilogue, kOutput>>(List::kAll[kIndex])...};
  }
  (std::make_integer_sequence<int, kCount>());
  return kernels;
}

}  // namespace culet::sm90
