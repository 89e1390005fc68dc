// How a large-M kernel's tile ends: an epilogue is a type that changes the sums and stores them.
//   Begin(finish)         before the tile's products: what can be fetched meanwhile
//   Finish(finish, tile)  from the tile's sums to D
// Both are called by all threads of a consumer warpgroup.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/epilogue.cuh"
#include "kernels/sm90/block/factors.cuh"
#include "kernels/sm90/block/gated.cuh"
#include "kernels/sm90/block/split_rows.cuh"
#include "kernels/sm90/block/store.cuh"
#include "kernels/sm90/block/tiles.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// A consumer's warp, and its part of each tile: `rows` of 16 in each m64 block.
template <class C>
struct ConsumerWarp {
  int warp, group, lane;  ///< group: warpgroup
  int set;                ///< of those that take turns
  int group_m, group_n;   ///< warpgroup's place in the tile
  int row_offset, column_offset;
  int row;  ///< the warp's first in the tile

  static __device__ __forceinline__ ConsumerWarp Mine() {
    const int warp = WarpUniform(threadIdx.x / 32) - 4, group = warp / 4;
    const int of_tile = group % C::kTileWarpgroups;
    const int group_m = of_tile % C::kWarpgroupsM, group_n = of_tile / C::kWarpgroupsM;
    const int row_offset = group_m * C::kBlocksM * 64;
    return {.warp = warp,
            .group = group,
            .lane = static_cast<int>(threadIdx.x % 32),
            .set = group / C::kTileWarpgroups,
            .group_m = group_m,
            .group_n = group_n,
            .row_offset = row_offset,
            .column_offset = group_n * C::kColumns,
            .row = row_offset + warp % 4 * 16};
  }
};

/// Calls `use(m, begin)` for each part of a warpgroup's sums that this CTA stores: C::kShareColumns
/// columns from `begin` on of m64 block `m`. With split K these are the parts that it reduced.
template <class C, class Use>
__device__ __forceinline__ void ForShare(int rank, Use use) {
  if constexpr (C::kSplit == 1) {
#pragma unroll
    for (int m = 0; m < C::kBlocksM; ++m) use(m, 0);
  } else {
    constexpr int kParts = C::kSplit / C::kBlocksM;  // CTAs that share an m64 block
#pragma unroll
    for (int r = 0; r < C::kSplit; ++r)
      if (r == rank) use(r / kParts, r % kParts * C::kShareColumns);
  }
}

/// A tile whose products are summed: where the warp's part of it begins in D and in the product,
/// which of paired columns is twice as wide.
template <class C>
struct SummedTile {
  const TileWalk<C>& walk;
  int row, product_column, column;
};

/// What an epilogue has of a consumer: its sums and their place (`store`), and memory.
template <class C>
struct BlockFinish {
  /// Store buffers are contiguous per warp, or per four warps if a TMA box has 64 rows.
  static constexpr int kTogether = C::kStoreRows / 16;
  const BlockParams& p;
  BlockShared<C>& shared;
  const ConsumerWarp<C>& me;
  uint8_t* stages;
  uint8_t* slabs;      ///< of all warps
  uint8_t* own_slabs;  ///< of this one
  int rank;            ///< in the cluster
  bool leads;          ///< this thread issues the bulk stores of its slabs
  TileStore<C> store;
  BlockFactors<C> factors;
  int step = 0;           ///< in a run (C::kRun)
  int count = 0;          ///< of tiles so far
  float largest[2] = {};  ///< of a run's rows so far

  __device__ __forceinline__ float* shared_largest() const {
    return reinterpret_cast<float*>(stages + C::kLargestAt);
  }

  /// With split K: adds up the cluster's sums, of which this CTA gets its share.
  __device__ __forceinline__ void Reduce() {
    if constexpr (C::kSplit > 1) {
      __syncwarp();
      ClusterWait();
      if constexpr (!C::kSplitsRows)
        ReduceSplit(&store.sum[0][0], store.lane, shared, incoming(), rank);
    }
  }
  /// Where sums of the cluster's other CTAs arrive.
  __device__ __forceinline__ uint8_t* incoming() const { return C::kOwnPartials ? slabs : stages; }

  /// Everything of EpilogueParams but the gate. Its lambdas capture variables, not `this`, through
  /// which ptxas would keep the sums in memory.
  __device__ __forceinline__ void Change(const SummedTile<C>& tile) {
    const BlockParams& p = this->p;
    const int row = tile.row, column = tile.product_column, lane = store.lane;
    auto& sum = store.sum;
    if constexpr (C::kBringsFactors) {
      auto& of_tile = factors;
      const int own_row = me.warp % 4 * 16 + lane / 4;  // of its m64 block
      of_tile.Wait();
      ForShare<C>(rank, [&](int m, int begin) {
        float* const to = &sum[m][begin / 2];
        of_tile.template Multiply<C::kShareColumns>(to, m * 64 + own_row, begin, lane);
        AddC<C>(p.epilogue, to, row + m * 64 + lane / 4, column + begin, p.m, p.n, lane);
      });
      if (p.epilogue.bias == nullptr) return;
      of_tile.BringBias(store.tile.row + me.row_offset, column, p.m, p.n);
      ForShare<C>(rank, [&](int m, int begin) {
        of_tile.template Add<C::kShareColumns>(&sum[m][begin / 2], m * 64 + own_row, begin, lane);
      });
    } else if (ChangesSums(p.epilogue)) {
      ForShare<C>(rank, [&](int m, int begin) {
        ApplyGeneral<C>(p.epilogue, &sum[m][begin / 2], row + m * 64 + lane / 4, column + begin,
                        p.m, p.n, lane);
      });
    }
  }

  /// Stores this CTA's share of the sums, gated or not, in D's type.
  __device__ __forceinline__ void Store(const SummedTile<C>& tile) {
    constexpr int kShare = C::kGated ? C::kShareColumns / 2 : C::kShareColumns;  // of D
    const int row = tile.row, column = tile.column;
    auto& store = this->store;
    const auto for_share = [&](auto use) {
      ForShare<C>(rank, [&](int m, int begin) { use(m, C::kGated ? begin / 2 : begin); });
    };
    if constexpr (C::kCopies) {
      for_share(
          [&](int m, int begin) { store.template StoreElements<kShare>(m, begin, row, column); });
      return;
    }
    if (C::Epilogue::kStoresSums || (!C::kPlain && p.epilogue.d_type == OutputType::kF32)) {
      for_share([&](int m, int begin) { store.template StoreF32<kShare>(m, begin, row, column); });
      return;
    }
    // The last tile has the stages for its slabs and need not wait for its own stores. With turns
    // another set's products may be there.
    const bool last = C::kSplit > 1 || (C::kTurns == 1 && tile.walk.is_last());
    if (last && (C::kSplit == 1 || C::kOwnPartials))
      NamedSync(1, 128 * C::kWarpgroups);  // all have left the stages
    uint8_t* const last_slabs = stages + C::kLastSlabs + me.warp * C::kAllSlabs * C::kSlabBytes;
    if (last) {
      for_share([&](int m, int begin) {
        store.template CopyColumns<kShare>(
            m, begin, last_slabs + (C::kSplit > 1 ? 0 : m * C::kSlabsN * C::kSlabBytes), row,
            column);
      });
    } else if (C::kGrouped && store.tile.rows < C::kTileM) {
      // A bulk store would write rows of the next group.
      store.WaitForSlabs(me.group, leads);
#pragma unroll
      for (int m = 0; m < C::kBlocksM; ++m)
        store.template CopyColumns<C::kColumnsOfD, 0>(m, 0, own_slabs, row, column);
    } else if constexpr (C::kAllSlabs <= C::kSlabs) {
      store.StoreSlabs(own_slabs, kTogether * C::kSlabBytes, row, column, me.group, leads);
    } else {
#pragma unroll
      for (int i = 0; i < C::kAllSlabs; ++i)
        store.StoreSlab(i, own_slabs + i % C::kSlabs * kTogether * C::kSlabBytes, row, column,
                        me.group, leads);
    }
  }
};

/// alpha * sum, in BF16 or F32.
template <OutputType kOutput>
struct PlainEpilogue {
  static constexpr EpilogueKind kKind = EpilogueKind::kPlain;
  static constexpr OutputType kType = kOutput;
  static constexpr bool kStoresSums = kOutput == OutputType::kF32;  ///< from registers

  template <class C>
  static __device__ __forceinline__ void Begin(BlockFinish<C>&) {}
  template <class C>
  static __device__ __forceinline__ void Finish(BlockFinish<C>& finish, const SummedTile<C>& tile) {
    const float alpha = finish.p.epilogue.alpha;
    if (C::kAlphaLast && (kStoresSums || C::kSplit > 1 || alpha != 1.0f)) {
#pragma unroll
      for (int m = 0; m < C::kBlocksM; ++m)
#pragma unroll
        for (int i = 0; i < C::kColumns / 2; ++i) finish.store.sum[m][i] *= alpha;
    }
    finish.Reduce();
    finish.Store(tile);
  }
};

/// Everything in EpilogueParams, chosen at run time; D in any type.
struct GeneralEpilogue {
  static constexpr EpilogueKind kKind = EpilogueKind::kGeneral;
  static constexpr bool kStoresSums = false;

  template <class C>
  static __device__ __forceinline__ void Begin(BlockFinish<C>& finish) {
    const BlockParams& p = finish.p;
    const int row = finish.store.tile.row + finish.me.row_offset;
    const int column = finish.store.tile.column + finish.me.column_offset;
    if (p.epilogue.c != nullptr && (C::kSplit == 1 || finish.rank == 0))
      PrefetchC<C>(p.epilogue, row, column, p.m, p.n);
    if constexpr (C::kBringsFactors) finish.factors.BringScales(row, column, p.m, p.n);
  }
  template <class C>
  static __device__ __forceinline__ void Finish(BlockFinish<C>& finish, const SummedTile<C>& tile) {
    finish.Reduce();
    finish.Change(tile);
    finish.Store(tile);
  }
};

/// GeneralEpilogue, then silu(gate) * up.
struct GatedEpilogue {
  static constexpr EpilogueKind kKind = EpilogueKind::kGated;
  static constexpr bool kStoresSums = false;

  template <class C>
  static __device__ __forceinline__ void Begin(BlockFinish<C>&) {}
  template <class C>
  static __device__ __forceinline__ void Finish(BlockFinish<C>& finish, const SummedTile<C>& tile) {
    finish.Reduce();
    finish.Change(tile);
    TileStore<C>& store = finish.store;
    if constexpr (C::kSplit == 1) {
      const bool last = C::kTurns == 1 && tile.walk.is_last();
      StoreGated(store, last, finish.own_slabs,
                 finish.stages + finish.me.warp * C::kAllSlabs * C::kSlabBytes, tile.row,
                 tile.column, finish.me.group, finish.leads);
    } else {
      const int left = store.n() - tile.column;
      ForShare<C>(finish.rank, [&](int m, int begin) {
        Gate<C, C::kShareColumns>(&store.sum[m][begin / 2], left - begin / 2,
                                  &store.sum[m][begin / 4]);
      });
      finish.Store(tile);
    }
  }
};

/// GatedEpilogue, rounded to E4M3 with a scale for each 128 columns of a row.
struct GatedQuantEpilogue {
  static constexpr EpilogueKind kKind = EpilogueKind::kGatedQuant;
  static constexpr bool kStoresSums = false;

  template <class C>
  static __device__ __forceinline__ void Begin(BlockFinish<C>&) {}
  template <class C>
  static __device__ __forceinline__ void Finish(BlockFinish<C>& finish, const SummedTile<C>& tile) {
    const ConsumerWarp<C>& me = finish.me;
    finish.Reduce();
    if constexpr (C::kSplitsRows) {
      FinishRow(finish, tile);
      return;
    }
    finish.Change(tile);
    const int row = tile.row, column = tile.column;
    if constexpr (C::kSharesScales) {
      StoreQuantisedShared(finish.store, finish.shared, finish.shared_largest(), finish.count++,
                           finish.rank, me.group_n, me.row, row, column);
    } else if constexpr (C::kWarpgroupsN > 1) {
      StoreQuantisedTogether(finish.store, finish.shared_largest(), me.row, row, column, me.group);
    } else {
      const bool more = ++finish.step < C::kRun;
      StoreQuantised(finish.store, more, finish.largest, finish.own_slabs, row, column);
      if (!more) finish.step = 0;
    }
  }

 private:
  /// Of split K: each CTA of the cluster finishes some of the rows.
  template <class C>
  static __device__ __forceinline__ void FinishRow(BlockFinish<C>& finish,
                                                   const SummedTile<C>& tile) {
    const BlockParams& p = finish.p;
    const int lane = finish.store.lane, group_n = finish.me.group_n;
    const RowEights<C> eights{finish.me.warp % (4 * C::kWarpgroupsM), finish.rank};
    float sums[C::kColumns / 4];
    ReduceRows(&finish.store.sum[0][0], sums, eights, group_n, lane, finish.shared,
               finish.incoming());
    const int mine = eights.Mine();
    if (mine < 0) return;
    const int row = tile.row + mine * 8 + lane / 4;
    if (ChangesSums(p.epilogue))
      ApplyGeneralToRow<C>(p.epilogue, sums, row, tile.product_column, p.m, p.n, lane);
    StoreQuantisedRow(p, sums, eights, group_n, tile.column, finish.shared_largest(), row, lane);
  }
};

}  // namespace culet::sm90
