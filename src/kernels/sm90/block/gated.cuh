// How a large-M kernel stores a tile whose columns are pairs of gate and up.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/sm90/block/config.cuh"
#include "kernels/sm90/block/epilogue.cuh"
#include "kernels/sm90/block/quantise.cuh"
#include "kernels/sm90/block/store.cuh"
#include "sm90/epilogue.cuh"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::sm90 {

/// Bytes from a warp's slab of a tile to its next slab. Where four warps store together, their
/// slabs lie side by side.
template <class C>
constexpr int kSlabStep = C::kStoreRows / 16 * C::kSlabBytes;

/// Computes SwiGLU of a warp's sums and stores it from row `row` and column `column` of D on,
/// through `slabs`, or for the last tile through `last_slabs` in the stages. It works slab by slab:
/// one slab is read while the next is filled. A box is 64 columns wide, so the warp copies narrower
/// slabs itself. `group`, `leads`: see StoreSlab.
template <class C>
__device__ __forceinline__ void StoreGated(TileStore<C>& store, bool last, uint8_t* slabs,
                                           uint8_t* last_slabs, int row, int column, int group,
                                           bool leads) {
  const bool f32 = store.p.epilogue.d_type == OutputType::kF32;
  constexpr int kWidth = C::kColumnsOfD / C::kSlabsN;
#pragma unroll
  for (int i = 0; i < C::kAllSlabs; ++i) {
    const int m = i / C::kSlabsN, s = i % C::kSlabsN;
    Gate<C, kWidth * 2>(&store.sum[m][s * kWidth], store.n() - column - s * kWidth,
                        &store.sum[m][s * kWidth / 2]);
    if (f32) {
      store.template StoreF32<kWidth>(m, s * kWidth, row, column);
    } else if constexpr (kWidth < 64) {
      __syncwarp();  // the previous slab has been copied
      store.template CopySlab<kWidth>(m, s * kWidth, slabs, row, column);
    } else if (last) {
      if (i == 0) NamedSync(1, 128 * C::kWarpgroups);  // all have left the stages
      store.template CopySlab<64>(m, s * 64, last_slabs + i * C::kSlabBytes, row, column);
    } else {
      store.StoreSlab(i, slabs + i % C::kSlabs * kSlabStep<C>, row, column, group, leads);
    }
  }
}

/// Computes SwiGLU of a warp's sums, quantises it and stores it with its scales. The first tile of
/// a run (`more`) has half of the columns that share a scale. Its values stay in the warp's slabs,
/// and their magnitudes in `largest`, which is zero before and after a run.
template <class C>
__device__ __forceinline__ void StoreQuantised(TileStore<C>& store, bool more, float (&largest)[2],
                                               uint8_t* slabs, int row, int column) {
  const BlockParams& p = store.p;
  constexpr int kCount = C::kColumnsOfD;
  float values[kCount / 2];
  // Part after part: there are not enough registers for the sums and values of all.
  constexpr int kParts = kCount > 64 ? 4 : 1, kPairs = kCount / 8 / kParts;
  const auto gate = [&]<int... kPart>(std::integer_sequence<int, kPart...>) {
    (GateLargest<C, kPart * kPairs, kPairs>(store.sum[0], p.n / 2 - column, store.lane,
                                            values + kPart * kPairs * 4, largest),
     ...);
  };
  gate(std::make_integer_sequence<int, kParts>());
  if (more) {
    KeepValues(values, slabs, kSlabStep<C>, store.lane);
    return;
  }
  constexpr int kBefore = 128 - kCount;  // columns of the run's first tile
  column -= kBefore;
  const TwoScales scales =
      TakeScales(p, largest, row, column, store.lane, true, [](float(&)[2]) {});
  largest[0] = largest[1] = 0.0f;
  if constexpr (C::kRun > 1) {
    float kept[32];
    RecallValues(kept, slabs, kSlabStep<C>, store.lane);
    StoreCodes<C, 64>(p, kept, scales, row, column, store.lane);
  }
  StoreCodes<C, kCount>(p, values, scales, row, column + kBefore, store.lane);
}

/// The same where several CTAs of a cluster have the columns of a scale. They send each other the
/// largest magnitudes of their rows. `tile`: its number among those of this CTA. Two arrays of
/// magnitudes alternate, which is enough because no CTA is more than a tile ahead of another.
template <class C>
__device__ __forceinline__ void StoreQuantisedShared(TileStore<C>& store, BlockShared<C>& shared,
                                                     float* largest, int tile, int rank,
                                                     int group_n, int row_in_tile, int row,
                                                     int column) {
  const BlockParams& p = store.p;
  const int lane = store.lane, own_row = row_in_tile + lane / 4;
  constexpr int kCount = C::kColumnsOfD;
  float values[kCount / 2], magnitudes[2] = {};
  GateLargest<C, 0, kCount / 8>(store.sum[0], p.n / 2 - column, lane, values, magnitudes);
  largest += tile % 2 * C::kSharers * C::kTileM;
  uint64_t* const arrived = &shared.largest[tile % 2][row_in_tile / 16];
  const auto exchange = [&](float(&of_rows)[2]) {
    // Each of a row's lanes sends to another CTA.
    if (lane % 4 < C::kClusterN) {
      const float* const own = largest + (rank * C::kWarpgroupsN + group_n) * C::kTileM + own_row;
      const uint32_t to = MapToRank(SharedAddress(own), lane % 4);
      const uint32_t barrier = MapToRank(SharedAddress(arrived), lane % 4);
      StoreAsync(to, of_rows[0], barrier);
      StoreAsync(to + 8 * 4, of_rows[1], barrier);
    }
    // Warps side by side have the same rows: each expects its share of what is sent of them.
    if (lane == 0) BarrierArriveExpect(arrived, C::kClusterN * 16 * 4);
    BarrierWaitCluster(arrived, tile / 2 & 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Each of a row's lanes reads one.
      of_rows[h] = LargestOfLanes<1, C::kSharers / 2>(
          largest[lane % C::kSharers * C::kTileM + own_row + h * 8]);
    }
  };
  const TwoScales scales =
      TakeScales(p, magnitudes, row, column, lane, rank == 0 && group_n == 0, exchange);
  StoreCodes<C, kCount>(p, values, scales, row, column, lane);
}

/// The same where two warpgroups side by side have the columns of a scale. They exchange the
/// largest magnitudes of their rows through `largest`, one array a warpgroup. `row_in_tile`: the
/// warp's first.
template <class C>
__device__ __forceinline__ void StoreQuantisedTogether(TileStore<C>& store, float* largest,
                                                       int row_in_tile, int row, int column,
                                                       int group) {
  const BlockParams& p = store.p;
  const int lane = store.lane;
  constexpr int kThreads = 128 * C::kWarpgroups, kCount = C::kColumnsOfD;
  float values[kCount / 2], magnitudes[2] = {};
  GateLargest<C, 0, kCount / 8>(store.sum[0], p.n / 2 - column, lane, values, magnitudes);
  const auto exchange = [&](float(&of_rows)[2]) {
    const int first = row_in_tile + lane / 4;
    NamedSync(1, kThreads);  // those of the previous tile have been read
    if (lane % 4 == 0) {
      largest[group * C::kTileM + first] = of_rows[0];
      largest[group * C::kTileM + first + 8] = of_rows[1];
    }
    NamedSync(1, kThreads);
    of_rows[0] = LargerMagnitude(of_rows[0], largest[(1 - group) * C::kTileM + first]);
    of_rows[1] = LargerMagnitude(of_rows[1], largest[(1 - group) * C::kTileM + first + 8]);
  };
  const TwoScales scales = TakeScales(p, magnitudes, row, column, lane, group == 0, exchange);
  StoreCodes<C, kCount>(p, values, scales, row, column, lane);
}

}  // namespace culet::sm90
