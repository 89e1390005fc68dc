// The large-M kernel: D = A x B of one format, tiles of 128 to 256 rows and 64 to 256 columns.
//
// A producer thread fills a ring of stages by TMA. With block scales, every fourth stage also
// brings the scales of four k-blocks (a quad). Each consumer warpgroup multiplies its own part of
// the tile (block/mainloop.cuh) and stores it through its own shared-memory buffers, so only the
// last tile needs a barrier of all consumers (block/store.cuh).
#pragma once

#include <cstdint>

#include "kernels/sm90/block/copy.cuh"
#include "kernels/sm90/block/epilogue.cuh"
#include "kernels/sm90/block/factors.cuh"
#include "kernels/sm90/block/gated.cuh"
#include "kernels/sm90/block/mainloop.cuh"
#include "kernels/sm90/block/producer.cuh"
#include "kernels/sm90/block/split_rows.cuh"
#include "kernels/sm90/block/store.cuh"
#include "kernels/sm90/block/tiles.cuh"
#include "sm90/descriptor.h"
#include "sm90/scheduler.h"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::sm90 {

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

template <class C, class Layout>
__device__ __forceinline__ void Consume(const BlockParams& p, BlockShared<C>& shared, Layout layout,
                                        uint8_t* stages, uint8_t* slabs, const uint8_t* quads,
                                        int rank, int kb_begin, int kb_end) {
  const int warp = WarpUniform(threadIdx.x / 32) - 4;
  const int group = warp / 4, lane = threadIdx.x % 32;
  const int of_tile = group % C::kTileWarpgroups, set = group / C::kTileWarpgroups;
  const int group_m = of_tile % C::kWarpgroupsM, group_n = of_tile / C::kWarpgroupsM;
  const int row_offset = group_m * C::kBlocksM * 64, column_offset = group_n * C::kColumns;
  const int warp_row = row_offset + (warp % 4) * 16;
  const uint32_t base = SharedAddress(stages);
  Consumer<C, Layout> c{p,
                        shared,
                        layout,
                        static_cast<uint32_t>(WgmmaDescriptor128(base + row_offset * kBlockBytes)),
                        static_cast<uint32_t>(WgmmaDescriptor128(base + C::kStageBytesA +
                                                                 column_offset * kBlockBytes)),
                        SharedAddress(quads),
                        (warp_row + lane / 4) * layout.row,
                        column_offset,
                        lane};
  // Store buffers are contiguous per warp, or per four warps if a TMA box has 64 rows.
  constexpr int kTogether = C::kStoreRows / 16;
  uint8_t* const own_slabs =
      slabs + (warp / kTogether * C::kSlabs * kTogether + warp % kTogether) * C::kSlabBytes;
  // The storing lane is elected once. 16-bit kernels with C have no register left for it and test
  // `lane == 0` each time; elsewhere that test would lengthen the main loop.
  constexpr bool kElects = C::kPlain || C::Policy::kInfo.element_bytes == 1 ||
                           C::Epilogue::kKind == EpilogueKind::kGated;
  const bool leads = warp % kTogether == 0 && (kElects ? ElectOne() : lane == 0);
  TileStore<C> store{p, c.sum, c.place, c.lane};
  BlockFactors<C> factors{p.epilogue, stages + C::kFactorsAt, group};
  // One named barrier per set, released by the set before it. The stores use barriers 2 to 4.
  constexpr int kTurnBarrier = 5, kTurnThreads = 2 * 128 * C::kTileWarpgroups;
  if constexpr (C::kTurns > 1) c.Skip(set * (kb_end - kb_begin));
  int step = 0;                    // in a run
  [[maybe_unused]] int count = 0;  // of tiles so far
  // Of a run's rows so far.
  [[maybe_unused]] float largest[2] = {};
  for (TileWalk<C> walk(p, shared, set); walk.there(); walk.Advance(step == 0 ? C::kTurns : 0)) {
    c.StartTile(walk, rank, step);
    if constexpr (C::kLag > 0) {
      // Delay once: the warpgroups then share the tensor core and stay apart.
      if (group_m > 0 && step == 0 && walk.is_first() && !walk.is_last()) Lag(group_m * C::kLag);
    }
    if constexpr (!C::kPlain && !C::kGated)
      if (p.epilogue.c != nullptr && (C::kSplit == 1 || rank == 0))
        PrefetchC<C>(p.epilogue, c.place.row + row_offset, c.place.column + column_offset, p.m,
                     p.n);
    if constexpr (C::kBringsFactors)
      factors.BringScales(c.place.row + row_offset, c.place.column + column_offset, p.m, p.n);
    // Sets take turns, also because parity distinguishes only adjacent phases of a barrier: a set
    // may test a stage only after the set before it has seen all fills of its own tile.
    if (C::kTurns > 1 && !walk.is_first()) NamedSync(kTurnBarrier + set, kTurnThreads);
    const auto started = [&] {
      if (C::kTurns > 1 && !walk.is_last())
        NamedArrive(kTurnBarrier + (set + 1) % C::kTurns, kTurnThreads);
      if (C::kWaitsUnder && step == 0) store.WaitForSlabs(group, leads);
    };
    // Skip products whose rows all lie past the matrix.
    const bool cut = C::kGrouped ? row_offset >= c.place.rows
                                 : p.m % C::kTileM != 0 && c.place.row + row_offset >= p.m;
    if (C::kWarpgroupsM > 1 && C::kSplit == 1 && cut)
      c.Pass(kb_begin, kb_end), started();
    else
      c.Sum(kb_begin, kb_end, started);
    if constexpr (C::kTurns > 1) c.Skip((C::kTurns - 1) * (kb_end - kb_begin));
    if (C::kPlain && C::kAlphaLast &&
        (C::Epilogue::kStoresSums || C::kSplit > 1 || p.epilogue.alpha != 1.0f)) {
#pragma unroll
      for (int m = 0; m < C::kBlocksM; ++m)
#pragma unroll
        for (int i = 0; i < C::kColumns / 2; ++i) c.sum[m][i] *= p.epilogue.alpha;
    }
    // First the product's column, then D's: gated kernels have half as many.
    const int row = c.place.row + warp_row, product_column = c.place.column + column_offset;
    const int column = C::kGated ? product_column / 2 : product_column;
    if constexpr (C::kSplit > 1) {
      __syncwarp();
      ClusterWait();
    }
    uint8_t* const incoming = C::kOwnPartials ? slabs : stages;
    if constexpr (C::kSplitsRows) {
      const RowEights<C> eights{warp % (4 * C::kWarpgroupsM), rank};
      float sums[C::kColumns / 4];
      ReduceRows(&c.sum[0][0], sums, eights, group_n, lane, shared, incoming);
      const int mine = eights.Mine();
      if (mine < 0) continue;
      const int own_row = row + mine * 8 + lane / 4;
      if (ChangesSums(p.epilogue))
        ApplyGeneralToRow<C>(p.epilogue, sums, own_row, product_column, p.m, p.n, lane);
      StoreQuantisedRow(p, sums, eights, group_n, column,
                        reinterpret_cast<float*>(stages + C::kLargestAt), own_row, lane);
      continue;
    } else if constexpr (C::kSplit > 1) {
      ReduceSplit(&c.sum[0][0], lane, shared, incoming, rank);
    }
    if constexpr (C::kBringsFactors) {
      const int own_row = warp % 4 * 16 + lane / 4;  // of its m64 block
      factors.Wait();
      ForShare<C>(rank, [&](int m, int begin) {
        float* const sum = &c.sum[m][begin / 2];
        factors.template Multiply<C::kShareColumns>(sum, m * 64 + own_row, begin, lane);
        AddC<C>(p.epilogue, sum, row + m * 64 + lane / 4, product_column + begin, p.m, p.n, lane);
      });
      if (p.epilogue.bias != nullptr) {
        factors.BringBias(c.place.row + row_offset, product_column, p.m, p.n);
        ForShare<C>(rank, [&](int m, int begin) {
          factors.template Add<C::kShareColumns>(&c.sum[m][begin / 2], m * 64 + own_row, begin,
                                                 lane);
        });
      }
    } else if (!C::kPlain && ChangesSums(p.epilogue)) {
      ForShare<C>(rank, [&](int m, int begin) {
        ApplyGeneral<C>(p.epilogue, &c.sum[m][begin / 2], row + m * 64 + lane / 4,
                        product_column + begin, p.m, p.n, lane);
      });
    }
    if constexpr (C::kQuantises && !C::kSplitsRows) {
      if constexpr (C::kSharesScales) {
        StoreQuantisedShared(store, shared, reinterpret_cast<float*>(stages + C::kLargestAt),
                             count++, rank, group_n, warp_row, row, column);
      } else if constexpr (C::kWarpgroupsN > 1) {
        StoreQuantisedTogether(store, reinterpret_cast<float*>(stages + C::kLargestAt), warp_row,
                               row, column, group);
      } else {
        const bool more = ++step < C::kRun;
        StoreQuantised(store, more, largest, own_slabs, row, column);
        if (!more) step = 0;
      }
      continue;
    }
    if constexpr (C::kGated && C::kSplit == 1) {
      const bool last = C::kTurns == 1 && walk.is_last();
      StoreGated(store, last, own_slabs, stages + warp * C::kAllSlabs * C::kSlabBytes, row, column,
                 group, leads);
      continue;
    }
    constexpr int kShare = C::kGated ? C::kShareColumns / 2 : C::kShareColumns;  // of D
    if constexpr (C::kGated) {
      ForShare<C>(rank, [&](int m, int begin) {
        Gate<C, C::kShareColumns>(&c.sum[m][begin / 2], store.n() - column - begin / 2,
                                  &c.sum[m][begin / 4]);
      });
    }
    if constexpr (C::kCopies) {
      ForShare<C>(rank, [&](int m, int begin) {
        store.template StoreElements<kShare>(m, begin, row, column);
      });
      continue;
    }
    if (C::Epilogue::kStoresSums || (!C::kPlain && p.epilogue.d_type == OutputType::kF32)) {
      ForShare<C>(rank, [&](int m, int begin) {
        store.template StoreF32<kShare>(m, C::kGated ? begin / 2 : begin, row, column);
      });
      continue;
    }
    // The last tile has the stages for its slabs and need not wait for its own stores. With turns
    // another set's products may be there.
    const bool last = C::kSplit > 1 || (C::kTurns == 1 && walk.is_last());
    if (last && (C::kSplit == 1 || C::kOwnPartials))
      NamedSync(1, 128 * C::kWarpgroups);  // all have left the stages
    uint8_t* const last_slabs = stages + C::kLastSlabs + warp * C::kAllSlabs * C::kSlabBytes;
    if (last) {
      ForShare<C>(rank, [&](int m, int begin) {
        store.template CopyColumns<kShare>(
            m, C::kGated ? begin / 2 : begin,
            last_slabs + (C::kSplit > 1 ? 0 : m * C::kSlabsN * C::kSlabBytes), row, column);
      });
    } else if (C::kGrouped && c.place.rows < C::kTileM) {
      // A bulk store would write rows of the next group.
      store.WaitForSlabs(group, leads);
#pragma unroll
      for (int m = 0; m < C::kBlocksM; ++m)
        store.template CopyColumns<C::kColumnsOfD, 0>(m, 0, own_slabs, row, column);
    } else if constexpr (C::kAllSlabs <= C::kSlabs) {
      store.StoreSlabs(own_slabs, kTogether * C::kSlabBytes, row, column, group, leads);
    } else {
#pragma unroll
      for (int i = 0; i < C::kAllSlabs; ++i)
        store.StoreSlab(i, own_slabs + i % C::kSlabs * kTogether * C::kSlabBytes, row, column,
                        group, leads);
    }
  }
  if (leads) TmaStoreWaitRead<0>();
}

/// kHalves: of paired columns with block scales, gate's lie in one half of B and up's in the other.
template <class C, bool kHalves>
__global__ void __launch_bounds__(C::kThreads, 1) BlockGemm(const __grid_constant__ BlockParams p) {
  CULET_DYNAMIC_SHARED(stages);
  uint8_t* const slabs = stages + C::kSlabsAt;
  uint8_t* const quads = stages + C::kQuadsAt;
  auto& shared = *reinterpret_cast<BlockShared<C>*>(stages + C::kBarriersAt);
  constexpr int kCluster = C::kMulticast * C::kSplit;
  if constexpr (C::kGrouped) {
    // The kernel before writes the number of tiles.
    GridDependencyWait();
    if (threadIdx.x < 32) CountGroupTiles<C>(p, shared);
    __syncthreads();
  }
  if (static_cast<uint32_t>(FirstTile<C>(p)) >= static_cast<uint32_t>(TileCount<C>(p, shared))) {
    // Stays resident until the kernel before has ended (BlockGrid).
    GridDependencyWait();
    return;
  }
  const int rank = kCluster > 1 ? static_cast<int>(ClusterRank()) : 0;
  int kb_begin = 0, kb_end = p.k_blocks;
  if constexpr (C::kSplit > 1) SplitRange(p.k_blocks, C::kSplit, rank, kb_begin, kb_end);
  const int warp = WarpUniform(threadIdx.x / 32);
  // The first loads start once their own barriers exist; another warp initialises the rest.
  // Multicast loads signal other CTAs' barriers and first wait for the cluster.
  constexpr bool kEarly = C::kMulticast == 1 && !C::kCopies;
  Producer<C> producer{p, shared, stages, quads, rank, kb_begin, kb_end};
  const bool producing = warp == 0 && ElectOne();
  if (producing) {
    shared.ring.InitFull(C::kCopies                       ? kCopyArrivals
                         : !C::kScaled || p.scales_by_tma ? FullArrivals()
                                                          : FullArrivals(32));
    BarrierInitFence();
    if constexpr (kEarly) {
      GridDependencyWait();
      producer.LoadFirst();
    }
  }
  if (warp == 1 && ElectOne()) {
    shared.ring.InitEmpty(EmptyArrivals(4 * C::kTileWarpgroups, C::kMulticast));
    BarrierInit(&shared.peers_done, C::kConsumerWarps * C::kSplit);
    BarrierInit(&shared.partials, 1);
    if constexpr (C::kSharesScales) {
      for (auto& of_tile : shared.largest)
        for (uint64_t& of_rows : of_tile) BarrierInit(&of_rows, C::kWarpgroupsN);
    }
    BarrierInitFence();
  }
  if (!C::kCopies && warp == 2 && ElectOne()) {
    PrefetchTensorMap(&p.b);
    if (C::kScaled && p.scales_by_tma) {
      PrefetchTensorMap(&p.u);
      PrefetchTensorMap(&p.v);
    }
    if constexpr (!C::Epilogue::kStoresSums)
      if (C::kPlain || p.d_has_map) PrefetchTensorMap(&p.d_map);
  }
  if constexpr (C::kMulticast > 1) {  // loads reach the other CTAs' barriers
    ClusterArriveRelaxed();
    ClusterWait();
  } else {
    __syncthreads();
    // Signals that this CTA's barriers exist; waited for before sums are exchanged.
    if constexpr (C::kSplit > 1) ClusterArriveRelaxed();
  }
  GridDependencyWait();
  GridDependencyLaunch();
  if (threadIdx.x < 128) {
    RegistersDown<C::kProducerRegisters>();
    if constexpr (C::kCopies) {
      if (p.by_eights)
        CopyOperands<C, 8>(p, shared, stages, quads, rank, kb_begin, kb_end);
      else
        CopyOperands<C, 4>(p, shared, stages, quads, rank, kb_begin, kb_end);
    } else if (warp == 0) {
      // elect.sync always picks the same lane, so this one also loaded the first quad.
      if (ElectOne()) {
        if (p.b_leaves_first)
          producer.template Run<true>();
        else
          producer.template Run<false>();
      }
    } else if (warp == 1) {
      if constexpr (C::kScaled)
        if (!p.scales_by_tma) CopyScales<C>(p, shared, quads, rank, kb_begin, kb_end);
    }
    if constexpr (C::kSplit > 1) {
      __syncwarp();
      ClusterWait();
    }
  } else {
    RegistersUp<C::kConsumerRegisters>();
    const bool rows_inner = p.scales_by_tma && p.u_rows_inner;
    const auto consume = [&](auto layout) {
      Consume<C>(p, shared, layout, stages, slabs, quads, rank, kb_begin, kb_end);
    };
    using Rows = KnownLayout<C, true, kHalves>;
    using Quads = KnownLayout<C, false, kHalves>;
    if constexpr (!C::kScaled)
      consume(NoLayout{});
    else if constexpr (!C::kTwoInFlight)
      consume(GivenLayout<kHalves>{rows_inner ? Rows::row : Quads::row,
                                   rows_inner ? Rows::block : Quads::block});
    else if (rows_inner)
      consume(Rows{});
    else
      consume(Quads{});
  }
}

}  // namespace culet::sm90
