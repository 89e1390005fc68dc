// The large-M kernel: D(BF16 or F32) = A(E4M3, scales 1x128) x B(E4M3, scales 128x128), FP32
// promotion every 128 of K.
//
// A producer thread feeds a ring of stages by TMA, the scales of four k-blocks (a quad) with every
// fourth stage; the consumer warpgroups multiply, each its own part of the tile. A product of one
// k-block goes to a small FP32 accumulator and is then promoted, sum += scale_a * scale_b *
// product, while the tensor core runs another warpgroup's product. That needs the time between the
// end of a product and the start of the next to stay below the other's product (some 200 of 256
// clocks for 64 x 128 x 128), so whatever else a k-block needs (scales, the next stage's barrier,
// descriptors, the tile's place) is made ready under the products. Each warpgroup stores its own
// rows through its own slabs of shared memory: no barrier of all consumers but for the last tile.
#pragma once

#include <cstdint>

#include "kernels/sm90/fp8_block_producer.cuh"
#include "sm90/descriptor.h"
#include "sm90/epilogue.cuh"
#include "sm90/pipeline.cuh"
#include "sm90/scheduler.h"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::sm90 {

/// scale_a * scale_b of one k-block as one thread needs them: two rows of each m64 block, groups of
/// columns.
template <class C>
struct StepScales {
  float x[C::kBlocksM][C::kScaleGroups][2];
};

/// How A's scales lie in a quad, four of a row side by side or all rows of a k-block: bytes from a
/// row to the next, and from a k-block. A constant where straight-line code gains by it.
template <class C, bool kRowsInner>
struct KnownLayout {
  static constexpr uint32_t row = kRowsInner ? 4 : 16;
  static constexpr uint32_t block = kRowsInner ? C::kTileM * 4 : 4;
};
/// The same, told at run time.
struct GivenLayout {
  uint32_t row, block;
};

/// The consumer's registers and its place; one object a thread, fully unrolled into registers.
template <class C, class Layout>
struct Consumer {
  static constexpr uint32_t kStageStep = (C::kStageBytesA + C::kStageBytesB) / 16;
  const Fp8BlockParams& p;
  Fp8BlockShared<C>& shared;
  Layout layout;
  uint32_t low_a, low_b;  // low words of the descriptors of this warpgroup's A and B
  uint32_t quads;         // shared address of the first quad
  uint32_t row_a;         // this thread's first row in a quad, bytes
  int column_offset;      // of this warpgroup in the tile
  int lane;
  int quad = 0;  // slot of the current one
  TilePlace place;
  bool ready = false;  // the next stage's data are known to be there
  RingCursor<C::kStages> at;
  float sum[C::kBlocksM][C::kColumns / 2];
  float products[C::kTwoInFlight ? 2 : 1][C::kProductN / 2];

  /// Starts product `i` of a k-block in accumulator `slot`: four wgmma of depth 32, one group. The
  /// k-block is the next one, or `ahead` stages behind it in the ring.
  __device__ __forceinline__ void Issue(int i, int slot = 0, int ahead = 0) {
    float(&product)[C::kProductN / 2] = products[slot];
    const uint32_t skip = ahead * kStageStep;
    // Only a descriptor's low word depends on the address; sums of 64 bits would add a carry each.
    const uint32_t a = low_a + skip + i / C::kProductsN * (64 * kBlockK / 16);
    const uint32_t b = low_b + skip + i % C::kProductsN * (C::kProductN * kBlockK / 16);
    constexpr uint64_t kHigh = kWgmmaDescriptor128 & 0xFFFFFFFF00000000ull;
    constexpr uint32_t kStep = kWgmmaKBytes / 16;
    using Product = Wgmma<E4m3, C::kProductN>;
    FenceRegisters(product);
    WgmmaFence();
    Product::template Ss<false>(product, kHigh | a, kHigh | b);
    Product::template Ss<true>(product, kHigh | (a + kStep), kHigh | (b + kStep));
    Product::template Ss<true>(product, kHigh | (a + 2 * kStep), kHigh | (b + 2 * kStep));
    Product::template Ss<true>(product, kHigh | (a + 3 * kStep), kHigh | (b + 3 * kStep));
    WgmmaCommit();
  }

  /// Moves to the next stage.
  __device__ __forceinline__ void Advance() {
    at.Advance();
    const uint32_t step = at.stage == 0 ? kStageStep - C::kStages * kStageStep : kStageStep;
    low_a += step;
    low_b += step;
  }

  /// Reads where the tile lies from its first quad.
  __device__ __forceinline__ void StartTile() {
    if (!ready) shared.ring.WaitFull(at);
    ready = true;
    const int2 v = LoadSharedInt2(quads + quad * C::kQuadBytes + C::kQuadPlace);
    place = {v.x, v.y};
  }

  /// Brings the scales of k-block `kb` to registers.
  __device__ __forceinline__ void ReadScales(int kb, StepScales<C>& s) {
    const uint32_t base = quads + quad * C::kQuadBytes;
    const uint32_t from = base + row_a + (kb & 3) * layout.block;
    float a[C::kBlocksM][2];
#pragma unroll
    for (int m = 0; m < C::kBlocksM; ++m) {
      a[m][0] = LoadShared(from + m * 64 * layout.row);
      a[m][1] = LoadShared(from + (m * 64 + 8) * layout.row);
    }
    // In a tile of 128 columns or a multiple each warpgroup has one block of 128.
    constexpr int kBlocks = C::kScaleGroups == 1 ? 1 : C::kScaleBlocks;
    const int column = place.column % 128 + column_offset;
    const uint32_t from_b =
        base + C::kQuadB + (kb & 3) * 4 + (kBlocks == 1 ? column / 128 * 16 : 0);
    float x[kBlocks][C::kBlocksM][2];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const float b = LoadShared(from_b + i * 16) * (C::kAlphaLast ? 1.0f : p.alpha);
#pragma unroll
      for (int m = 0; m < C::kBlocksM; ++m) {
        x[i][m][0] = a[m][0] * b;
        x[i][m][1] = a[m][1] * b;
      }
    }
#pragma unroll
    for (int g = 0; g < C::kScaleGroups; ++g)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int m = 0; m < C::kBlocksM; ++m)
          if (i == 0 || column + g * C::kScaleColumns >= i * 128) {
            s.x[m][g][0] = x[i][m][0];
            s.x[m][g][1] = x[i][m][1];
          }
  }

  /// sum += scales * product, for product `i` in accumulator `slot`.
  __device__ __forceinline__ void Promote(int i, const StepScales<C>& s, int slot = 0) {
    float(&product)[C::kProductN / 2] = products[slot];
    const int m = i / C::kProductsN, h = i % C::kProductsN;
    FenceRegisters(product);
#pragma unroll
    for (int n8 = 0; n8 < C::kProductN / 8; ++n8) {
      const int column = h * C::kProductN + n8 * 8;
      const float x0 = s.x[m][column / C::kScaleColumns][0];
      const float x1 = s.x[m][column / C::kScaleColumns][1];
      float* d = &sum[m][column / 2];
      const float* v = &product[n8 * 4];
      d[0] = fmaf(x0, v[0], d[0]);
      d[1] = fmaf(x0, v[1], d[1]);
      d[2] = fmaf(x1, v[2], d[2]);
      d[3] = fmaf(x1, v[3], d[3]);
    }
  }

  /// One k-block; `last`: of its quad.
  __device__ __forceinline__ void Step(int kb, bool last) {
    if (!ready) shared.ring.WaitFull(at);
    const int stage = at.stage;
    StepScales<C> s;
#pragma unroll
    for (int i = 0; i < C::kProducts; ++i) {
      Issue(i);
      if (i == 0) ReadScales(kb, s);
      if (i == C::kProducts - 1) {
        Advance();
        if (last) AdvanceQuad();
        ready = shared.ring.TestFull(at);
      }
      WgmmaWait<0>();
      if (i == C::kProducts - 1) shared.ring.template Release<C::kMulticast>(stage, lane);
      Promote(i, s);
    }
  }

  /// The next quad.
  __device__ __forceinline__ void AdvanceQuad() { quad = quad + 1 == C::kQuads ? 0 : quad + 1; }

  /// kCount k-blocks, whole quads, two products in flight. Straight-line and drained at its end:
  /// accumulators in flight over a loop's back edge make ptxas serialise every wgmma. Where it goes
  /// around the ring whole times stages are constants; then requires at.stage == 0.
  template <int kCount>
  __device__ __forceinline__ void StepQuads() {
    constexpr bool kAround = kCount % C::kStages == 0;
    StepScales<C> s[2];
    int stages[2];
#pragma unroll
    for (int j = 0; j <= kCount; ++j) {
      if (j < kCount) {
        if constexpr (kAround) at.stage = j % C::kStages;
        if (!ready) shared.ring.WaitFull(at);
        stages[j % 2] = at.stage;
        Issue(0, j % 2, kAround ? j % C::kStages : 0);
        // A NOP that the loads of scales, and what waits for them, are not scheduled across, or
        // they would hold up the products; a product of 64 columns is too short to hide them behind
        // it.
        if constexpr (C::kProductN > 64) __syncwarp();
        ReadScales(j % 4, s[j % 2]);
        if (j % 4 == 3) AdvanceQuad();
        if constexpr (kAround)
          at.Advance();
        else
          Advance();
        ready = shared.ring.TestFull(at);
      }
      if (j > 0) {
        if (j < kCount)
          WgmmaWait<1>();
        else
          WgmmaWait<0>();
        shared.ring.template Release<C::kMulticast>(stages[(j - 1) % 2], lane);
        Promote(0, s[(j - 1) % 2], (j - 1) % 2);
      }
    }
  }

  /// Takes the longest run of straight-line code, up to kCount k-blocks, that begins at `kb` and
  /// ends by `kb_end`; moves `kb` past it. False when there is none.
  template <int kCount>
  __device__ __forceinline__ bool StepStraight(int& kb, int kb_end) {
    if (kb % 4 == 0 && kb + kCount <= kb_end && (kCount % C::kStages != 0 || at.stage == 0)) {
      this->template StepQuads<kCount>();
      kb += kCount;
      return true;
    }
    if constexpr (kCount > 4)
      return StepStraight<kCount / 2>(kb, kb_end);
    else
      return false;
  }

  /// Stores this warp's rows as F32: four lanes write 32 bytes side by side. Requires: D and its
  /// rows aligned to 8 bytes.
  __device__ __forceinline__ void StoreF32(int row, int column) {
    column += lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2 * C::kBlocksM; ++i) {  // rows r and r + 8 of each m64 block
      const int at = row + i / 2 * 64 + i % 2 * 8 + lane / 4;
      if (at >= p.m) continue;
      float* const to = static_cast<float*>(p.out) + at * p.ldd;
#pragma unroll
      for (int n8 = 0; n8 < C::kColumns / 8; ++n8) {
        const float* v = &sum[i / 2][n8 * 4 + i % 2 * 2];
        const int j = column + n8 * 8;
        if (j + 1 < p.n) {
          *reinterpret_cast<float2*>(to + j) = make_float2(v[0], v[1]);
        } else if (j < p.n) {
          to[j] = v[0];
        }
      }
    }
  }

  /// Stores kWidth columns from `offset` on of m64 block `m`. Unlike StoreSlab for the last tile,
  /// with nothing left that would hide the way of a bulk store: the warp copies, and need not wait.
  /// Requires: D and its rows aligned to 16 bytes.
  template <int kWidth>
  __device__ __forceinline__ void CopySlab(int m, int offset, uint8_t* slab, int row, int column) {
    StoreSlab16<kWidth>(SharedAddress(slab), &sum[m][offset / 2], lane);
    __syncwarp();
    const int chunk = lane % 8, first = lane / 8;
    if (chunk >= kWidth / 8) return;
    const int to_row = row + m * 64 + first, to_column = column + offset + chunk * 8;
    auto* to = static_cast<uint16_t*>(p.out) + to_row * p.ldd + to_column;
#pragma unroll
    for (int j = 0; j < 16; j += 4, to += 4 * p.ldd) {
      const uint8_t* const from =
          slab + SwizzledOffset(SwizzleMode::k128Bytes, first + j, chunk * 16);
      if (to_row + j >= p.m) break;
      if (to_column + 8 <= p.n) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
        for (int e = 0; e < p.n - to_column; ++e)
          to[e] = reinterpret_cast<const uint16_t*>(from)[e];
      }
    }
  }

  /// Stores the columns [begin, begin + kCount) of m64 block `m`, each 64 through a slab of its own
  /// from `slab` on; the last 64 overlap those before where kCount is no multiple.
  template <int kCount>
  __device__ __forceinline__ void CopyColumns(int m, int begin, uint8_t* slab, int row,
                                              int column) {
    constexpr int kWidth = kCount < 64 ? kCount : 64;
#pragma unroll
    for (int done = 0; done < kCount; done += 64, slab += C::kSlabBytes) {
      const int from = done + kWidth <= kCount ? done : kCount - kWidth;
      CopySlab<kWidth>(m, begin + from, slab, row, column);
    }
  }

  /// Stores slab `i` (of kBlocksM * kSlabsN): this warp's 16 rows go to `slab`, and from there to
  /// D, alone or with its warpgroup's as one box of 64 rows (kStoreRows). The last slab of a row of
  /// slabs overlaps the one before where the columns are no multiple of 64: both write the same
  /// values. The slab's memory may still be read by the store kSlabs stores ago, or where the
  /// buffers' turn starts anew with each tile in the middle of one, by the store before. `leads`:
  /// this thread issues the stores, always the same one of those that store together.
  __device__ __forceinline__ void StoreSlab(int i, uint8_t* slab, int row, int column, int group,
                                            bool leads) {
    const auto sync = [&] {
      if constexpr (C::kStoreRows == 64)
        NamedSync(2 + group, 128);
      else
        __syncwarp();
    };
    const int m = i / C::kSlabsN, s = i % C::kSlabsN;
    const int offset = s * 64 + 64 <= C::kColumns ? s * 64 : C::kColumns - 64;
    if (leads) {
      if (C::kAllSlabs % C::kSlabs != 0 && i == 0)
        TmaStoreWaitRead<0>();
      else
        TmaStoreWaitRead<C::kSlabs - 1>();
    }
    sync();
    StoreSlab16<64>(SharedAddress(slab), &sum[m][offset / 2], lane);
    FenceAsyncShared();
    sync();
    if (leads) {
      if (row + m * 64 < p.m && column + offset < p.n)
        TmaStore(&p.d, slab, column + offset, row + m * 64);
      TmaStoreCommit();
    }
  }
};

/// Split K: exchanges partial sums over distributed shared memory. Afterwards CTA `rank` holds the
/// sums of registers [rank * kShare, (rank + 1) * kShare) of every thread, added in the order of
/// the parts, so results repeat bit by bit. The partial sums may land in the stages, and a cluster
/// of a split kernel computes one tile (PlanFp8Block sizes the grid). A CTA that has all its
/// partial sums is sent nothing more, and may leave before the others.
template <class C, class Layout>
__device__ __forceinline__ void ReduceSplit(Consumer<C, Layout>& c, Fp8BlockShared<C>& shared,
                                            uint8_t* incoming_sums, int rank) {
  constexpr int kRegisters = C::kBlocksM * C::kColumns / 2;
  constexpr int kShare = kRegisters / C::kSplit;
  const int thread = threadIdx.x - 128;
  float* mine = &c.sum[0][0];
  if constexpr (!C::kOwnPartials) {
    __syncwarp();
    if (c.lane < C::kSplit) BarrierArriveRemote(&shared.peers_done, c.lane);
    BarrierWait(&shared.peers_done, 0);
  }
  if (thread == 0) BarrierArriveExpect(&shared.partials, (C::kSplit - 1) * kShare * 4 * 256);
#pragma unroll
  for (int to = 0; to < C::kSplit; ++to) {
    if (to == rank) continue;
    const int slot = rank < to ? rank : rank - 1;
    const uint32_t base =
        MapToRank(SharedAddress(incoming_sums), to) + (slot * (kShare / 4) * 256 + thread) * 16;
    const uint32_t barrier = MapToRank(SharedAddress(&shared.partials), to);
#pragma unroll
    for (int j = 0; j < kShare / 4; ++j) {
      const float* v = mine + to * kShare + j * 4;
      StoreAsync(base + j * 256 * 16, make_float4(v[0], v[1], v[2], v[3]), barrier);
    }
  }
  BarrierWaitCluster(&shared.partials, 0);
  const float4* incoming = reinterpret_cast<const float4*>(incoming_sums) + thread;
#pragma unroll
  for (int r = 0; r < C::kSplit; ++r) {
    if (r != rank) continue;
#pragma unroll
    for (int j = 0; j < kShare / 4; ++j) {
      float* own = mine + r * kShare + j * 4;
      float4 sum;
#pragma unroll
      for (int from = 0; from < C::kSplit; ++from) {
        const float4 v = from == r
                             ? make_float4(own[0], own[1], own[2], own[3])
                             : incoming[((from < r ? from : from - 1) * (kShare / 4) + j) * 256];
        sum = from == 0 ? v : make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
      }
      own[0] = sum.x;
      own[1] = sum.y;
      own[2] = sum.z;
      own[3] = sum.w;
    }
  }
}

template <class C, class Layout>
__device__ __forceinline__ void Consume(const Fp8BlockParams& p, Fp8BlockShared<C>& shared,
                                        Layout layout, uint8_t* stages, uint8_t* slabs,
                                        const uint8_t* quads, int rank, int kb_begin, int kb_end) {
  const int warp = WarpUniform(threadIdx.x / 32) - 4;
  const int group = warp / 4, lane = threadIdx.x % 32;
  const int group_m = group % C::kWarpgroupsM, group_n = group / C::kWarpgroupsM;
  const int row_offset = group_m * C::kBlocksM * 64, column_offset = group_n * C::kColumns;
  const int warp_row = row_offset + (warp % 4) * 16;
  const uint32_t base = SharedAddress(stages);
  Consumer<C, Layout> c{
      p,
      shared,
      layout,
      static_cast<uint32_t>(WgmmaDescriptor128(base + row_offset * kBlockK)),
      static_cast<uint32_t>(WgmmaDescriptor128(base + C::kStageBytesA + column_offset * kBlockK)),
      SharedAddress(quads),
      (warp_row + lane / 4) * layout.row,
      column_offset,
      lane};
  // A warp's slabs side by side, or those of four warps for a box of 64 rows.
  constexpr int kTogether = C::kStoreRows / 16;
  uint8_t* const own_slabs =
      slabs + (warp / kTogether * C::kSlabs * kTogether + warp % kTogether) * C::kSlabBytes;
  const bool leads = warp % kTogether == 0 && ElectOne();
  const int clusters = gridDim.x / (C::kMulticast * C::kSplit);
  for (int tile = FirstTile<C>(p); tile < p.order.count(); tile += clusters) {
    c.StartTile();
#pragma unroll
    for (int m = 0; m < C::kBlocksM; ++m)
#pragma unroll
      for (int i = 0; i < C::kColumns / 2; ++i) c.sum[m][i] = 0.0f;
#pragma unroll 1
    for (int kb = kb_begin; kb < kb_end;) {
      if constexpr (C::kTwoInFlight)
        if (c.template StepStraight<C::kStraightBlocks>(kb, kb_end)) continue;
      c.Step(kb, kb % 4 == 3 || kb == kb_end - 1);
      ++kb;
    }
    if (C::kAlphaLast && (C::kFloat32 || C::kSplit > 1 || p.alpha != 1.0f)) {
#pragma unroll
      for (int m = 0; m < C::kBlocksM; ++m)
#pragma unroll
        for (int i = 0; i < C::kColumns / 2; ++i) c.sum[m][i] *= p.alpha;
    }
    const int row = c.place.row + warp_row, column = c.place.column + column_offset;
    if constexpr (C::kFloat32) {
      c.StoreF32(row, column);
      continue;
    }
    if constexpr (C::kSplit > 1) {
      __syncwarp();
      ClusterWait();
      ReduceSplit(c, shared, C::kOwnPartials ? slabs : stages, rank);
    }
    // The last tile has the stages for its slabs and need not wait for its own stores.
    const bool last = C::kSplit > 1 || tile + clusters >= p.order.count();
    if (last && (C::kSplit == 1 || C::kOwnPartials))
      NamedSync(1, 128 * C::kWarpgroups);  // all have left the stages
    uint8_t* const last_slabs = stages + C::kLastSlabs + warp * C::kAllSlabs * C::kSlabBytes;
    if constexpr (C::kSplit > 1) {
      constexpr int kParts = C::kSplit / C::kBlocksM;  // CTAs that share an m64 block
#pragma unroll
      for (int r = 0; r < C::kSplit; ++r)
        if (r == rank)
          c.template CopyColumns<C::kShareColumns>(r / kParts, r % kParts * C::kShareColumns,
                                                   last_slabs, row, column);
    } else if (last) {
#pragma unroll
      for (int m = 0; m < C::kBlocksM; ++m)
        c.template CopyColumns<C::kColumns>(m, 0, last_slabs + m * C::kSlabsN * C::kSlabBytes, row,
                                            column);
    } else {
#pragma unroll
      for (int i = 0; i < C::kAllSlabs; ++i)
        c.StoreSlab(i, own_slabs + i % C::kSlabs * kTogether * C::kSlabBytes, row, column, group,
                    leads);
    }
  }
  if (leads) TmaStoreWaitRead<0>();
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    Fp8BlockGemm(const __grid_constant__ Fp8BlockParams p) {
  extern __shared__ __align__(1024)
      uint8_t stages[];  // no static shared memory: starts at a multiple of 1024
  uint8_t* slabs = stages + C::kStages * (C::kStageBytesA + C::kStageBytesB);
  uint8_t* quads = slabs + C::kSlabsBytes;
  auto& shared = *reinterpret_cast<Fp8BlockShared<C>*>(quads + C::kQuads * C::kQuadBytes);
  constexpr int kCluster = C::kMulticast * C::kSplit;
  if (static_cast<uint32_t>(FirstTile<C>(p)) >= static_cast<uint32_t>(p.order.count())) {
    // Keeps its place until the kernel before has ended (Fp8BlockGrid).
    GridDependencyWait();
    return;
  }
  const int rank = kCluster > 1 ? static_cast<int>(ClusterRank()) : 0;
  int kb_begin = 0, kb_end = p.k_blocks;
  if constexpr (C::kSplit > 1) SplitRange(p.k_blocks, C::kSplit, rank, kb_begin, kb_end);
  const int warp = WarpUniform(threadIdx.x / 32);
  // The first loads leave as soon as their barriers are there; another warp prepares the rest.
  // Where loads reach other CTAs' barriers they wait for the cluster.
  constexpr bool kEarly = C::kMulticast == 1;
  Producer<C> producer{p, shared, stages, quads, rank, kb_begin, kb_end};
  const bool producing = warp == 0 && ElectOne();
  if (producing) {
    shared.ring.InitFull(FullArrivals(p.scales_by_tma ? 0 : 32));
    BarrierInitFence();
    if constexpr (kEarly) {
      GridDependencyWait();
      producer.LoadFirstQuad();
    }
  }
  if (warp == 1 && ElectOne()) {
    shared.ring.InitEmpty(EmptyArrivals(C::kConsumerWarps, C::kMulticast));
    BarrierInit(&shared.peers_done, C::kConsumerWarps * C::kSplit);
    BarrierInit(&shared.partials, 1);
    BarrierInitFence();
  }
  if (warp == 2 && ElectOne()) {
    PrefetchTensorMap(&p.b);
    if (p.scales_by_tma) {
      PrefetchTensorMap(&p.u);
      PrefetchTensorMap(&p.v);
    }
    if constexpr (!C::kFloat32) PrefetchTensorMap(&p.d);
  }
  if constexpr (C::kMulticast > 1) {  // loads reach the other CTAs' barriers
    ClusterArriveRelaxed();
    ClusterWait();
  } else {
    __syncthreads();
    // Says that this CTA's barriers are there; waited for before sums are exchanged.
    if constexpr (C::kSplit > 1) ClusterArriveRelaxed();
  }
  GridDependencyWait();
  GridDependencyLaunch();
  if (threadIdx.x < 128) {
    RegistersDown<C::kProducerRegisters>();
    if (warp == 0) {
      // The lane that loaded the first quad: elect.sync chooses the same one each time.
      if (ElectOne()) {
        if (p.b_leaves_first)
          producer.template Run<true>();
        else
          producer.template Run<false>();
      }
    } else if (warp == 1 && !p.scales_by_tma) {
      CopyScales<C>(p, shared, quads, rank, kb_begin, kb_end);
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
    using Rows = KnownLayout<C, true>;
    using Quads = KnownLayout<C, false>;
    if constexpr (!C::kTwoInFlight)
      consume(GivenLayout{rows_inner ? Rows::row : Quads::row,
                          rows_inner ? Rows::block : Quads::block});
    else if (rows_inner)
      consume(Rows{});
    else
      consume(Quads{});
  }
}

}  // namespace culet::sm90
