// The large-M kernel: D = A x B of one format, tiles of 128 to 256 rows and 64 to 256 columns.
//
// A producer thread fills a ring of stages by TMA. With block scales, every fourth stage also
// brings the scales of four k-blocks (a quad). Each consumer warpgroup multiplies its own part of
// the tile (block/mainloop.cuh) and stores it through its own shared-memory buffers, so only the
// last tile needs a barrier of all consumers (block/store.cuh).
#pragma once

#include <cstdint>

#include "kernels/sm90/block/copy.cuh"
#include "kernels/sm90/block/finish.cuh"
#include "kernels/sm90/block/mainloop.cuh"
#include "kernels/sm90/block/producer.cuh"
#include "kernels/sm90/block/tiles.cuh"
#include "sm90/descriptor.h"
#include "sm90/scheduler.h"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::sm90 {

template <class C, class Layout>
__device__ __forceinline__ void Consume(const BlockParams& p, BlockShared<C>& shared, Layout layout,
                                        uint8_t* stages, uint8_t* slabs, const uint8_t* quads,
                                        int rank, int kb_begin, int kb_end) {
  const auto me = ConsumerWarp<C>::Mine();
  const int row_offset = me.row_offset;
  const uint32_t base = SharedAddress(stages);
  Consumer<C, Layout> c{p,
                        shared,
                        layout,
                        static_cast<uint32_t>(WgmmaDescriptor128(base + row_offset * kBlockBytes)),
                        static_cast<uint32_t>(WgmmaDescriptor128(base + C::kStageBytesA +
                                                                 me.column_offset * kBlockBytes)),
                        SharedAddress(quads),
                        (me.row + me.lane / 4) * layout.row,
                        me.column_offset,
                        me.lane};
  // The storing lane is elected once. 16-bit kernels with C have no register left for it and test
  // `lane == 0` each time; elsewhere that test would lengthen the main loop.
  constexpr bool kElects = C::kPlain || C::Policy::kInfo.element_bytes == 1 ||
                           C::Epilogue::kKind == EpilogueKind::kGated;
  constexpr int kTogether = BlockFinish<C>::kTogether;
  BlockFinish<C> finish{
      .p = p,
      .shared = shared,
      .me = me,
      .stages = stages,
      .slabs = slabs,
      .own_slabs = slabs + (me.warp / kTogether * C::kSlabs * kTogether + me.warp % kTogether) *
                               C::kSlabBytes,
      .rank = rank,
      .leads = me.warp % kTogether == 0 && (kElects ? ElectOne() : me.lane == 0),
      .store = {p, c.sum, c.place, c.lane},
      .factors = {p.epilogue, stages + C::kFactorsAt, me.group}};
  // One named barrier per set, released by the set before it. The stores use barriers 2 to 4.
  constexpr int kTurnBarrier = 5, kTurnThreads = 2 * 128 * C::kTileWarpgroups;
  if constexpr (C::kTurns > 1) c.Skip(me.set * (kb_end - kb_begin));
  for (TileWalk<C> walk(p, shared, me.set); walk.there();
       walk.Advance(finish.step == 0 ? C::kTurns : 0)) {
    c.StartTile(walk, rank, finish.step);
    if constexpr (C::kLag > 0) {
      // Delay once: the warpgroups then share the tensor core and stay apart.
      if (me.group_m > 0 && finish.step == 0 && walk.is_first() && !walk.is_last())
        Lag(me.group_m * C::kLag);
    }
    C::Epilogue::Begin(finish);
    // Sets take turns, also because parity distinguishes only adjacent phases of a barrier: a set
    // may test a stage only after the set before it has seen all fills of its own tile.
    if (C::kTurns > 1 && !walk.is_first()) NamedSync(kTurnBarrier + me.set, kTurnThreads);
    const auto started = [&] {
      if (C::kTurns > 1 && !walk.is_last())
        NamedArrive(kTurnBarrier + (me.set + 1) % C::kTurns, kTurnThreads);
      if (C::kWaitsUnder && finish.step == 0) finish.store.WaitForSlabs(me.group, finish.leads);
    };
    // Skip products whose rows all lie past the matrix.
    const bool cut = C::kGrouped ? row_offset >= c.place.rows
                                 : p.m % C::kTileM != 0 && c.place.row + row_offset >= p.m;
    if (C::kWarpgroupsM > 1 && C::kSplit == 1 && cut)
      c.Pass(kb_begin, kb_end), started();
    else
      c.Sum(kb_begin, kb_end, started);
    if constexpr (C::kTurns > 1) c.Skip((C::kTurns - 1) * (kb_end - kb_begin));
    const int row = c.place.row + me.row, product_column = c.place.column + me.column_offset;
    C::Epilogue::Finish(finish, SummedTile<C>{walk, row, product_column,
                                              C::kGated ? product_column / 2 : product_column});
  }
  if (finish.leads) TmaStoreWaitRead<0>();
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
