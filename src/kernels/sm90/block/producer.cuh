// Fills a large-M kernel's ring: one thread by TMA, and one warp for scales that TMA cannot copy.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/config.cuh"
#include "kernels/sm90/block/tiles.cuh"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::sm90 {

/// Which quad is filled next, and when its slot was last in use.
template <class C>
struct QuadCursor {
  int slot = 0;
  int serial = 0;  // k-blocks of all quads before the one being filled
  int ends[C::kQuads > 0 ? C::kQuads : 1] =
      {};  // serial after the last k-block of the latest quads, oldest first

  /// Whether all k-blocks of the slot's last quad lie before those that the ring holds.
  __device__ __forceinline__ bool IsOlderThanRing() const {
    return ends[0] == 0 || serial + 1 - ends[0] >= C::kStages;
  }
  /// Waits until the slot's last quad has been read. Usually its k-blocks are older than the ring,
  /// so the stage just acquired implies it; after short quads it does not.
  __device__ __forceinline__ void Acquire(BlockShared<C>& shared, RingCursor<C::kStages> at) {
    if (IsOlderThanRing()) return;
    at.stage -= serial + 1 - ends[0];
    if (at.stage < 0) at.stage += C::kStages, at.parity ^= 1;
    BarrierWait(&shared.ring.empty[at.stage], at.parity);
  }
  /// Call after a quad's last k-block, with `serial` past it.
  __device__ __forceinline__ void Advance() {
#pragma unroll
    for (int i = 0; i + 1 < C::kQuads; ++i) ends[i] = ends[i + 1];
    ends[C::kQuads - 1] = serial;
    if (++slot == C::kQuads) slot = 0;
  }
};

/// The end of the quad that k-block `kb` is in.
__device__ __forceinline__ int QuadEnd(int kb, int kb_end) { return min((kb | 3) + 1, kb_end); }

/// The first block of B's scales for a tile that begins at product column `column`; gate's block if
/// B holds gate before up. Uses a shift: ptxas merges two divisions into one by an unknown divisor,
/// which costs the producer about 450 clocks.
template <class C>
__device__ __forceinline__ int FirstScaleOfB(const BlockParams& p, int column) {
  return column >> (C::kGated && p.epilogue.up_column != 0 ? 8 : 7);
}

/// What a CTA loads of a tile. Boxes end with the matrix: stage rows past it keep stale data, which
/// only affects rows of D that are not stored.
template <class C>
struct TileLoads {
  Tile place;
  const CUtensorMap *a, *b, *u;
  bool has_a, has_b;     ///< this CTA's share of a cluster's boxes has rows
  uint32_t stage_bytes;  ///< of A and B that reach this CTA in a k-block
  uint32_t quad_bytes;   ///< of a quad's scales

  __device__ __forceinline__ void Begin(const BlockParams& p, const TileWalk<C>& walk, int rank,
                                        int step = 0) {
    constexpr int kRowsA = C::kTileM / C::kClusterN, kRowsB = C::kTileN / C::kClusterM;
    const int rm = C::kMulticast > 1 ? rank % C::kClusterM : 0,
              rn = C::kMulticast > 1 ? rank / C::kClusterM : 0;
    place = walk.Place(rank, step, C::kGrouped ? place.group : 0);
    if constexpr (C::kGrouped) {  // whole boxes: rows past a group are its neighbour's
      a = &p.a, b = &p.b, u = &p.u;
      has_a = has_b = true;
      stage_bytes = C::kStageBytes;
      quad_bytes = C::kQuadLoadBytes;
      return;
    }
    const int left_a = p.m - place.row, left_b = p.n - place.column;
    a = left_a - rn * kRowsA < kRowsA ? &p.a_rest : &p.a;
    b = left_b - rm * kRowsB < kRowsB ? &p.b_rest : &p.b;
    has_a = left_a > rn * kRowsA;
    has_b = left_b > rm * kRowsB;
    const int rows_a = max(0, min(left_a, C::kTileM));
    // LanesPlan's boxes are always whole, with zeros past the matrix.
    constexpr int kWhole = C::kByLanes ? kLaneBox : 1;
    const int rows_b = max(0, min((left_b + kWhole - 1) / kWhole * kWhole, C::kTileN));
    stage_bytes = (rows_a + rows_b) * kBlockBytes;
    if constexpr (C::kScaled) {
      const bool ends = rows_a > 0 && rows_a < C::kTileM && !p.u_rows_inner;
      u = ends ? &p.u_rest : &p.u;
      quad_bytes = C::kQuadLoadBytes - (ends ? (C::kTileM - rows_a) * 16 : 0);
    }
  }
};

/// The producer: one thread. Its loop over k-blocks must be short: a thread needs at least four
/// clocks per instruction, and a 128 x 64 k-block takes 256 clocks of products and 384 of loads (64
/// bytes per clock). Requires: the CTA has a tile and a k-block.
template <class C>
struct Producer {
  const BlockParams& p;
  BlockShared<C>& shared;
  uint8_t *const stages, *const quads;
  const int rank, kb_begin, kb_end;
  int kb = kb_begin;  // the next one
  TileLoads<C> tile{};
  RingCursor<C::kStages> at{};
  QuadCursor<C> quad_at{};  // where there are scales

  /// Loads A and B of k-block `block` into the current stage, which is free and expects them.
  /// kBLeavesFirst: B is loaded with L2 evict-first.
  template <bool kBLeavesFirst>
  __device__ __forceinline__ void LoadOperands(int block) {
    // CTAs in one column of tiles share B: ranks rn * kClusterM + {0, 1, ...}; CTAs in one row
    // share A.
    const int rm = C::kMulticast > 1 ? rank % C::kClusterM : 0,
              rn = C::kMulticast > 1 ? rank / C::kClusterM : 0;
    uint64_t* full = &shared.ring.full[at.stage];
    uint8_t* a = stages + at.stage * C::kStageBytes;
    uint8_t* b = a + C::kStageBytesA;
    if constexpr (C::kClusterN > 1) {
      constexpr int kRows = C::kTileM / C::kClusterN;
      uint16_t mask = 0;
#pragma unroll
      for (int i = 0; i < C::kClusterN; ++i)
        mask |= static_cast<uint16_t>(1 << (i * C::kClusterM + rm));
      if (tile.has_a)
        TmaLoadMulticast(a + rn * kRows * kBlockBytes, tile.a, full, block * kBlockBytes,
                         tile.place.row + rn * kRows, mask);
    } else if (C::kClusterM == 1 || tile.has_a) {
      TmaLoad(a, tile.a, full, block * kBlockBytes, tile.place.row);
    }
    const auto load_b = [&](auto... policy) {
      if constexpr (C::kClusterM > 1) {
        constexpr int kRows = C::kTileN / C::kClusterM;
        const uint16_t mask =
            static_cast<uint16_t>(((1 << C::kClusterM) - 1) << (rn * C::kClusterM));
        uint8_t* const to = b + rm * kRows * kBlockBytes;
        const int column = tile.place.column + rm * kRows;
        if (!tile.has_b) return;
        if constexpr (C::kGated)
          TmaLoadMulticast4(to, tile.b, full, block * kBlockBytes, column / 16, mask, policy...);
        else
          TmaLoadMulticast(to, tile.b, full, block * kBlockBytes, column, mask, policy...);
      } else if ((C::kClusterN == 1 && C::kRun == 1) || tile.has_b) {
        if constexpr (C::kByLanes) {
#pragma unroll
          for (int i = 0; i < C::kTileN; i += kLaneBox)
            if (i == 0 || tile.place.column + i < p.n)
              TmaLoad4(b + i * kBlockBytes, &p.b, full, block * kBlockBytes,
                       (tile.place.column + i) / 16, 0, policy...);
        } else if constexpr (C::kGrouped)
          TmaLoad3(b, tile.b, full, block * kBlockBytes, tile.place.column, tile.place.group,
                   policy...);
        else if constexpr (C::kGated)
          TmaLoad4(b, tile.b, full, block * kBlockBytes, 0, tile.place.column / 16, policy...);
        else
          TmaLoad(b, tile.b, full, block * kBlockBytes, tile.place.column, policy...);
      }
    };
    if constexpr (kBLeavesFirst)
      load_b(EvictFirst());
    else
      load_b();
  }

  /// Loads the first k-block of a quad, and the quad. kFirst: the CTA's first, when only the
  /// stage's own barrier exists.
  template <bool kBLeavesFirst, bool kFirst>
  __device__ __forceinline__ void LoadQuad(int block) {
    if constexpr (!kFirst) {
      shared.ring.WaitEmpty(at);
      quad_at.Acquire(shared, at);
    }
    if constexpr (C::kGrouped)
      if (block == kb_begin) GroupTilesOf<C>(shared).of_stage[at.stage] = tile.place;
    uint8_t* quad = quads + quad_at.slot * C::kQuadBytes;
    uint64_t* full = &shared.ring.full[at.stage];
    if constexpr (!C::kGrouped)
      *reinterpret_cast<int2*>(quad + C::kQuadPlace) = make_int2(tile.place.row, tile.place.column);
    BarrierArriveExpect(full, tile.stage_bytes + (p.scales_by_tma ? tile.quad_bytes : 0));
    LoadOperands<kBLeavesFirst>(block);
    if (p.scales_by_tma) {  // last: 16-byte rows are the slowest for TMA
      const int kq = block & ~3;
      const int row = tile.place.row;
      TmaLoad(quad, tile.u, full, p.u_rows_inner ? row : kq, p.u_rows_inner ? kq : row);
      const int block_b = FirstScaleOfB<C>(p, tile.place.column);
      if constexpr (C::kGrouped)
        TmaLoad3(quad + C::kQuadB, &p.v, full, kq, block_b, tile.place.group);
      else if constexpr (C::kGated)
        TmaLoad3(quad + C::kQuadB, &p.v, full, kq, block_b, 0);
      else
        TmaLoad(quad + C::kQuadB, &p.v, full, kq, block_b);
    }
    at.Advance();
  }

  /// Loads `block`, which is not a quad's first. kFirst: its stage is unused so far.
  template <bool kBLeavesFirst, bool kFirst>
  __device__ __forceinline__ void LoadBlock(int block) {
    if constexpr (!kFirst) shared.ring.WaitEmpty(at);
    if constexpr (C::kGrouped)
      if (block == kb_begin) GroupTilesOf<C>(shared).of_stage[at.stage] = tile.place;
    BarrierArriveExpect(&shared.ring.full[at.stage], tile.stage_bytes);
    LoadOperands<kBLeavesFirst>(block);
    at.Advance();
  }

  /// Loads the CTA's first quad (four k-blocks), as far as the ring holds it, before the CTA's
  /// barrier: needs only the `full` barriers, which this thread initialised. Never uses the L2
  /// policy: four k-blocks per CTA are not worth a second copy of this code.
  __device__ __forceinline__ void LoadFirst() {
    tile.Begin(p, TileWalk<C>(p, shared), rank);
    if constexpr (C::kScaled) {
      const int end = min(QuadEnd(kb, kb_end), kb + C::kStages);
      LoadQuad<false, true>(kb);
#pragma unroll 1
      for (++kb; kb < end; ++kb) LoadBlock<false, true>(kb);
      quad_at.serial = end - kb_begin;
      if (end == QuadEnd(kb_begin, kb_end)) quad_at.Advance();
    } else {
      const int end = min(kb_end, kb + min(4, C::kStages));
#pragma unroll 1
      for (; kb < end; ++kb) LoadBlock<false, true>(kb);
    }
  }

  /// Loads the remaining k-blocks.
  template <bool kBLeavesFirst>
  __device__ __forceinline__ void Run() {
    TileWalk<C> walk(p, shared);
    int step = 0;
    if constexpr (C::kMulticast > 1) tile.Begin(p, walk, rank);
    for (;;) {
      if constexpr (C::kScaled) {
        while (kb < kb_end) {
          const int begin = kb, end = QuadEnd(kb, kb_end);
          // False only after a first quad that is longer than the ring.
          if (kb % 4 == 0 || kb == kb_begin) LoadQuad<kBLeavesFirst, false>(kb++);
#pragma unroll 1
          for (; kb < end; ++kb) LoadBlock<kBLeavesFirst, false>(kb);
          quad_at.serial += end - begin;
          quad_at.Advance();
        }
      } else {
#pragma unroll 1
        for (; kb < kb_end; ++kb) LoadBlock<kBLeavesFirst, false>(kb);
      }
      if (C::kRun == 1 || ++step == C::kRun) {
        walk.Advance();
        step = 0;
        if (!walk.there()) break;
      }
      tile.Begin(p, walk, rank, step);
      kb = kb_begin;
    }
    shared.ring.Drain(at);
  }
};

/// Copies the scales of k-block `kb`'s quad, 4 bytes at a time (one load-unit cycle each), as
/// thread `thread` of `threads`. Rows and columns past the matrix read its last ones; their results
/// are never stored.
template <class C>
__device__ __forceinline__ void CopyQuad(const BlockParams& p, const Tile& place, uint32_t quad,
                                         int kb, int thread, int threads) {
  const int kq = kb & ~3, count = min(4, p.k_blocks - kq);
  const auto copy = [&](uint32_t to, const float* from, int64_t apart) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < count) CopyAsync<4>(to + j * 4, from + (kq + j) * apart);
  };
  for (int i = thread; i < C::kTileM; i += threads)
    copy(quad + i * 16,
         p.scale_a + static_cast<int64_t>(min(place.row + i, p.m - 1)) * p.scale_a_row,
         p.scale_a_block);
  if (thread < C::kScaleBlocks) {
    constexpr int kOfGate = C::kPairsScales ? C::kScaleBlocks / 2 : 1;
    const bool halves = C::kGated && p.epilogue.up_column != 0;
    const int block_b =
        FirstScaleOfB<C>(p, place.column) +
        (halves ? thread / kOfGate * (p.epilogue.up_column / 128) + thread % kOfGate : thread);
    const int64_t column = min(block_b, (p.n - 1) / 128) +
                           (C::kGrouped ? int64_t{place.group} * ((p.n + 127) / 128) : 0);
    copy(quad + C::kQuadB + thread * 16, p.scale_b + column * p.scale_b_column, p.scale_b_block);
  }
}

/// One warp copies the scales that TMA cannot: rows not aligned to 16 bytes, or not a multiple of
/// 16 bytes apart.
template <class C>
__device__ __forceinline__ void CopyScales(const BlockParams& p, BlockShared<C>& shared,
                                           uint8_t* quads, int rank, int kb_begin, int kb_end) {
  RingCursor<C::kStages> at;
  QuadCursor<C> quad_at;
  int step = 0, group = 0;
  for (TileWalk<C> walk(p, shared); walk.there();) {
    const Tile place = walk.Place(rank, step, group);
    group = place.group;
    for (int kb = kb_begin; kb < kb_end;) {
      const int begin = kb, end = QuadEnd(kb, kb_end);
      shared.ring.WaitEmpty(at);
      quad_at.Acquire(shared, at);
      CopyQuad<C>(p, place, SharedAddress(quads + quad_at.slot * C::kQuadBytes), kb,
                  threadIdx.x % 32, 32);
      for (; kb < end; ++kb) {
        if (kb > begin) shared.ring.WaitEmpty(at);
        CopyAsyncArrive(&shared.ring.full[at.stage]);
        at.Advance();
      }
      quad_at.serial += end - begin;
      quad_at.Advance();
    }
    if (C::kRun == 1 || ++step == C::kRun) walk.Advance(), step = 0;
  }
}

}  // namespace culet::sm90
