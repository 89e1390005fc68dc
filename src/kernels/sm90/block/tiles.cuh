// Which tiles of a large-M kernel a CTA computes, and where they lie. The producer, the copier of
// scales and each consumer warpgroup walk the tiles independently.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/config.cuh"
#include "sm90/pipeline.cuh"
#include "sm90/scheduler.h"

namespace culet::sm90 {

/// A grouped kernel's tables in shared memory.
template <class C, bool kThere>
struct GroupTiles {
  Tile of_stage[C::kStages];        ///< of the tile whose first k-block the stage holds
  int first_tile[kMostGroups + 1];  ///< along M: those of the groups before; then of all groups
};
template <class C>
struct GroupTiles<C, false> {};

template <class C>
struct BlockShared {
  Ring<C::kStages> ring;
  uint64_t peers_done;  // split K: all consumer warps of the cluster have left their stages
  uint64_t partials;    // split K: the other parts of this CTA's share have arrived
  // kSharesScales, else not there: magnitudes of 16 rows of a tile, from all of the cluster.
  uint64_t largest[2][C::kSharesScales ? C::kTileM / 16 : 1];
};

/// The grouped kernel's tables follow the barriers.
template <class C>
__device__ __forceinline__ GroupTiles<C, C::kGrouped>& GroupTilesOf(BlockShared<C>& shared) {
  return *reinterpret_cast<GroupTiles<C, C::kGrouped>*>(reinterpret_cast<uint8_t*>(&shared) +
                                                        8 * (2 * C::kStages + 2));
}

/// The tiles of all CTAs.
template <class C>
__device__ __forceinline__ int TileCount(const BlockParams& p, BlockShared<C>& shared) {
  if constexpr (C::kGrouped)
    return GroupTilesOf<C>(shared).first_tile[p.groups.count] * p.groups.tiles_n;
  else
    return p.order.count();
}

/// The first tile of this CTA's cluster; if it has none, negative or at least the count.
template <class C>
__device__ __forceinline__ int FirstTile(const BlockParams& p) {
  return static_cast<int>(blockIdx.x / (C::kMulticast * C::kSplit)) - p.idle_clusters;
}

/// Iterates over a CTA's tiles: its first, or the `skip`-th after, then every clusters-th.
template <class C>
struct TileWalk {
  const BlockParams& p;
  BlockShared<C>& shared;
  const int clusters = gridDim.x / (C::kMulticast * C::kSplit);
  int index = FirstTile<C>(p);

  __device__ __forceinline__ TileWalk(const BlockParams& p, BlockShared<C>& shared, int skip = 0)
      : p(p), shared(shared) {
    index += skip * clusters;
  }
  /// Whether there is a tile.
  __device__ __forceinline__ bool there() const { return index < TileCount<C>(p, shared); }
  __device__ __forceinline__ bool is_first() const { return index == FirstTile<C>(p); }
  /// Whether this is the walk's last tile.
  __device__ __forceinline__ bool is_last() const {
    return index + clusters >= TileCount<C>(p, shared);
  }
  __device__ __forceinline__ void Advance(int tiles = 1) { index += tiles * clusters; }

  /// The place of tile `step` of the current sequence (C::kRun). `group`: in grouped kernels, the
  /// group of the walk's previous tile, or 0.
  __device__ __forceinline__ Tile Place(int rank, int step = 0, int group = 0) const {
    if constexpr (C::kGrouped) {
      const int* const first = GroupTilesOf<C>(shared).first_tile;
      const int tiles_n = p.groups.tiles_n;
      while (index >= first[group + 1] * tiles_n) ++group;
      // M varies fastest, so that neighbouring CTAs read the same B.
      const int in_group = index - first[group] * tiles_n,
                tiles_m = first[group + 1] - first[group];
      const int tm = in_group % tiles_m, tn = in_group / tiles_m;
      const int begin = max(p.groups.starts[group], 0);
      const int end = EndOf(group);
      const int row = begin + tm * C::kTileM;
      return {row, tn * C::kTileN, end - row, group};
    } else {
      int tm, tn;
      p.order.At(index, tm, tn);
      const int rm = C::kMulticast > 1 ? rank % C::kClusterM : 0,
                rn = C::kMulticast > 1 ? rank / C::kClusterM : 0;
      const int row = (tm * C::kClusterM + rm) * C::kTileM;
      return {row, ((tn * C::kClusterN + rn) * C::kRun + step) * C::kTileN, p.m - row, 0};
    }
  }
  /// The end of a group's rows.
  __device__ __forceinline__ int EndOf(int group) const {
    const BlockGroups& groups = p.groups;
    const int64_t end = groups.counts != nullptr
                            ? int64_t{groups.starts[group]} + max(groups.counts[group], 0)
                            : int64_t{groups.starts[group + 1]};
    return end < 0 ? 0 : static_cast<int>(end < p.m ? end : p.m);
  }
};

/// The first warp counts the groups' tiles; ends with a barrier of the CTA.
template <class C>
__device__ __forceinline__ void CountGroupTiles(const BlockParams& p, BlockShared<C>& shared) {
  int* const first = GroupTilesOf<C>(shared).first_tile;
  const TileWalk<C> walk(p, shared);
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int base = 0; base < p.groups.count; base += 32) {
    const int group = base + lane;
    int tiles = 0;
    if (group < p.groups.count) {
      const int rows = walk.EndOf(group) - max(p.groups.starts[group], 0);
      tiles = max(rows + C::kTileM - 1, 0) / C::kTileM;
    }
    int sum = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (lane >= step) sum += other;
    }
    if (group < p.groups.count) first[group + 1] = before + sum;
    before += __shfl_sync(0xFFFFFFFFu, sum, 31);
  }
  if (lane == 0) first[0] = 0;
}

}  // namespace culet::sm90
