// The large-M kernel: D(BF16) = A(E4M3, scales 1x128) x B(E4M3, scales 128x128), FP32 promotion
// every 128 of K.
//
// One producer thread feeds a ring of stages by TMA, one or two warps beside it a second, short
// ring with the scales; two consumer warpgroups multiply, each its own part of the tile. A product
// of one k-block goes to a small FP32 accumulator and is then promoted, sum += scale_a * scale_b *
// product, while the tensor core runs the other warpgroup's product. That needs the two out of
// step: in step, both promote at once and a k-block of 128 x 128 takes 663 clocks, out of step by
// 100 to 300 clocks it takes 512 (measured on an H200). So the second warpgroup starts late, and
// again after each time both had to wait for the same stage. Whatever else a k-block needs (scales,
// the next stage's barrier) is done under the products. Each consumer warp stores its own rows
// through its own shared-memory slabs: no barrier but those of the rings.
#pragma once

#include <cstdint>

#include "kernels/sm90/large_m.h"
#include "sm90/descriptor.h"
#include "sm90/epilogue.cuh"
#include "sm90/pipeline.cuh"
#include "sm90/scheduler.h"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::sm90 {

/// A configuration and what follows from it.
///   kTileM x kTileN   tile of a CTA
///   kWarpgroupsM, N   consumer warpgroups along M and N, two or three together
///   kProductN         columns of one product
///   kClusterM         CTAs along M that share B tiles; kClusterN along N that share A tiles
///   kSplit            CTAs of a cluster that share a tile along K
template <int kTileM_, int kTileN_, int kWarpgroupsM_, int kWarpgroupsN_, int kProductN_,
          int kStages_, int kClusterM_, int kClusterN_, int kSplit_, int kSlabs_>
struct LargeMConfig {
  static constexpr int kTileM = kTileM_, kTileN = kTileN_, kWarpgroupsM = kWarpgroupsM_,
                       kWarpgroupsN = kWarpgroupsN_;
  static constexpr int kProductN = kProductN_, kStages = kStages_;
  static constexpr int kClusterM = kClusterM_, kClusterN = kClusterN_, kSplit = kSplit_;
  static constexpr int kSlabs = kSlabs_;  // store buffers of a warp
  static constexpr int kScaleDepth = 2;   // slots of the ring of scales
  static constexpr int kScaleWarps = (kTileM + 127) / 128;
  static constexpr int kWarpgroups =
      kWarpgroupsM * kWarpgroupsN;  // consumers; the producer is one more
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kBlocksM = kTileM / kWarpgroupsM / 64;  // m64 blocks of a warpgroup
  static constexpr int kColumns = kTileN / kWarpgroupsN;       // columns of a warpgroup
  static constexpr int kProductsN = kColumns / kProductN;
  static constexpr int kProducts = kBlocksM * kProductsN;  // of a warpgroup in a k-block
  static constexpr int kMulticast = kClusterM * kClusterN;
  static constexpr int kStageBytesA = kTileM * kBlockK, kStageBytesB = kTileN * kBlockK;
  static constexpr int kSlabBytes = 16 * 128;
  static constexpr int kSlabsN = (kColumns + 63) / 64;  // slabs across a warpgroup's columns
  // Columns that share a B scale for sure: tiles and warpgroups start at multiples of it.
  static constexpr int kScaleColumns = kTileN % 128 == 0 && kColumns % 128 == 0 ? 128
                                       : kTileN % 64 == 0 && kColumns % 64 == 0 ? 64
                                       : kTileN % 32 == 0 && kColumns % 32 == 0 ? 32
                                                                                : 16;
  static constexpr int kScaleGroups = kColumns / kScaleColumns;
  static constexpr int kScaleFloats =
      kTileM + 2 * kWarpgroupsN;  // of a slot: A's rows, B's blocks a warpgroup
  static constexpr int kBarrierBytes = 8 * (2 * kStages + 2 * kScaleDepth + 2);
  static constexpr int kSmemBytes = kStages * (kStageBytesA + kStageBytesB) +
                                    kConsumerWarps * kSlabs * kSlabBytes +
                                    kScaleDepth * kScaleFloats * 4 + kBarrierBytes;
  // 64 Ki registers = 128 x (producer + 2 x consumer); multiples of 8.
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 232;

  static_assert(kWarpgroups == 2 || kWarpgroups == 3);
  static_assert(kTileM % (64 * kWarpgroupsM) == 0 && kColumns % kProductN == 0);
  static_assert(kColumns >= 64 && kColumns % 16 == 0 && kTileN % (8 * kClusterM) == 0);
  static_assert(kMulticast == 1 || kSplit == 1, "a cluster either shares operands or splits K");
  static_assert(kSplit == 1 || kWarpgroups == 2);
  static_assert(kSplit == 1 || kSplit == kBlocksM ||
                (kColumns % 64 == 0 && kBlocksM * kColumns / 64 % kSplit == 0));
  static_assert(kTileM % 32 == 0 && kScaleFloats % 2 == 0);
  static_assert(kScaleColumns < 128 || kScaleGroups == 1,
                "one B scale a warpgroup where it is aligned");
  static_assert(kSmemBytes <= 232448, "shared memory of an SM");
};

template <class C>
struct LargeMShared {
  Ring<C::kStages> ring;
  Ring<C::kScaleDepth> scales;
  uint64_t peers_done;  // split K: all consumer warps of the cluster have left their stages
  uint64_t partials;    // split K: the other parts of this CTA's share have arrived
};

/// Where a CTA is in the output.
struct TilePlace {
  int row, column;
};

template <class C>
__device__ __forceinline__ TilePlace PlaceOf(const LargeMParams& p, int index, int rank) {
  int tm, tn;
  p.order.At(index, tm, tn);
  const int rm = C::kMulticast > 1 ? rank % C::kClusterM : 0,
            rn = C::kMulticast > 1 ? rank / C::kClusterM : 0;
  return {(tm * C::kClusterM + rm) * C::kTileM, (tn * C::kClusterN + rn) * C::kTileN};
}

/// The producer: one thread.
template <class C>
__device__ __forceinline__ void Produce(const LargeMParams& p, LargeMShared<C>& shared,
                                        uint8_t* stages, int rank, int kb_begin, int kb_end) {
  constexpr int kStageBytes = C::kStageBytesA + C::kStageBytesB;
  const int clusters = gridDim.x / (C::kMulticast * C::kSplit);
  const int rm = C::kMulticast > 1 ? rank % C::kClusterM : 0,
            rn = C::kMulticast > 1 ? rank / C::kClusterM : 0;
  // CTAs with the same column of tiles share B: ranks rn * kClusterM + {0, 1, ...}; the same row
  // shares A.
  const uint16_t mask_b = static_cast<uint16_t>(((1 << C::kClusterM) - 1) << (rn * C::kClusterM));
  uint16_t mask_a = 0;
#pragma unroll
  for (int i = 0; i < C::kClusterN; ++i)
    mask_a |= static_cast<uint16_t>(1 << (i * C::kClusterM + rm));
  RingCursor<C::kStages> at;
  for (int tile = blockIdx.x / (C::kMulticast * C::kSplit); tile < p.order.count();
       tile += clusters) {
    const TilePlace place = PlaceOf<C>(p, tile, rank);
    for (int kb = kb_begin; kb < kb_end; ++kb) {
      shared.ring.Acquire(at, kStageBytes);
      uint8_t* a = stages + at.stage * kStageBytes;
      uint8_t* b = a + C::kStageBytesA;
      uint64_t* full = &shared.ring.full[at.stage];
      if constexpr (C::kClusterN > 1) {
        constexpr int kRows = C::kTileM / C::kClusterN;
        TmaLoadMulticast(a + rn * kRows * kBlockK, &p.a, full, kb * kBlockK, place.row + rn * kRows,
                         mask_a);
      } else {
        TmaLoad(a, &p.a, full, kb * kBlockK, place.row);
      }
      if constexpr (C::kClusterM > 1) {
        constexpr int kRows = C::kTileN / C::kClusterM;
        TmaLoadMulticast(b + rm * kRows * kBlockK, &p.b, full, kb * kBlockK,
                         place.column + rm * kRows, mask_b);
      } else {
        TmaLoad(b, &p.b, full, kb * kBlockK, place.column);
      }
      at.Advance();
    }
  }
  shared.ring.Drain(at);
}

/// The scales' producer: warp `part` of kScaleWarps, 128 rows of A each. It reads four k-blocks of
/// a row at a time into registers, as 16 bytes where the layout allows: a gather of 4 bytes a row
/// costs the load unit a cycle a row.
template <class C>
__device__ __forceinline__ void ProduceScales(const LargeMParams& p, LargeMShared<C>& shared,
                                              float* slots, int rank, int kb_begin, int kb_end,
                                              int part) {
  const int lane = threadIdx.x % 32;
  const int clusters = gridDim.x / (C::kMulticast * C::kSplit);
  RingCursor<C::kScaleDepth> at;
  for (int tile = blockIdx.x / (C::kMulticast * C::kSplit); tile < p.order.count();
       tile += clusters) {
    const TilePlace place = PlaceOf<C>(p, tile, rank);
    // B's block for lanes 0 .. 2 * kWarpgroupsN - 1. Rows and blocks outside the matrix read its
    // last ones: their results are never stored.
    const bool has_b = part == 0 && lane < 2 * C::kWarpgroupsN;
    const int block =
        min((place.column + lane / 2 * C::kColumns) / 128 + lane % 2, (p.n - 1) / 128);
    const float* b = p.scale_b + static_cast<int64_t>(block) * p.scale_b_column;
#pragma unroll 1
    for (int quad = kb_begin & ~3; quad < kb_end; quad += 4) {
      float4 va[4];
      float vb[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = min(place.row + part * 128 + i * 32 + lane, p.m - 1);
        const float* a = p.scale_a + static_cast<int64_t>(row) * p.scale_a_row +
                         static_cast<int64_t>(quad) * p.scale_a_block;
        if (p.scale_a_vector) {
          va[i] = __ldg(reinterpret_cast<const float4*>(a));
        } else {
          va[i].x = __ldg(a);
          va[i].y = quad + 1 < kb_end ? __ldg(a + p.scale_a_block) : 0.0f;
          va[i].z = quad + 2 < kb_end ? __ldg(a + 2 * static_cast<int64_t>(p.scale_a_block)) : 0.0f;
          va[i].w = quad + 3 < kb_end ? __ldg(a + 3 * static_cast<int64_t>(p.scale_a_block)) : 0.0f;
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j)
        vb[j] = has_b && quad + j < kb_end
                    ? __ldg(b + static_cast<int64_t>(quad + j) * p.scale_b_block)
                    : 0.0f;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (quad + j < kb_begin || quad + j >= kb_end) continue;
        BarrierWait(&shared.scales.empty[at.stage], at.parity ^ 1);
        float* slot = slots + at.stage * C::kScaleFloats;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (C::kTileM % 128 != 0 && part * 128 + i * 32 >= C::kTileM) break;
          slot[part * 128 + i * 32 + lane] = j == 0   ? va[i].x
                                             : j == 1 ? va[i].y
                                             : j == 2 ? va[i].z
                                                      : va[i].w;
        }
        if (has_b) slot[C::kTileM + lane] = vb[j];
        __syncwarp();
        if (lane == 0) BarrierArrive(&shared.scales.full[at.stage]);
        at.Advance();
      }
    }
  }
}

/// scale_a * scale_b of one k-block as one thread needs them: two rows of each m64 block, groups of
/// columns.
template <class C>
struct StepScales {
  float x[C::kBlocksM][C::kScaleGroups][2];
};

/// The consumer's registers and its place; one object a thread, fully unrolled into registers.
template <class C>
struct Consumer {
  const LargeMParams& p;
  LargeMShared<C>& shared;
  uint64_t descriptor_a, descriptor_b;  // of stage 0
  uint32_t scales_a, scales_b;          // this thread's, of slot 0: shared addresses
  int lane;
  int boundary;  // the columns before it use b[0]
  int stagger;   // clocks to stay behind the other warpgroup
  bool ready;    // the next stage's data are known to be there
  RingCursor<C::kStages> at;
  RingCursor<C::kScaleDepth> scale_at;
  float sum[C::kBlocksM][C::kColumns / 2];
  float product[C::kProductN / 2];

  /// Starts product `i` of the k-block in stage `stage`: four wgmma of depth 32, one group.
  __device__ __forceinline__ void Issue(int i, int stage) {
    const uint32_t offset =
        stage * static_cast<uint32_t>(WgmmaDescriptorStep(C::kStageBytesA + C::kStageBytesB));
    const uint64_t a = descriptor_a + (offset + i / C::kProductsN * (64 * kBlockK / 16));
    const uint64_t b = descriptor_b + (offset + i % C::kProductsN * (C::kProductN * kBlockK / 16));
    constexpr uint64_t kStep = WgmmaDescriptorStep(kWgmmaFp8KBytes);
    FenceRegisters(product);
    WgmmaFence();
    WgmmaE4m3<C::kProductN>::template Ss<false>(product, a, b);
    WgmmaE4m3<C::kProductN>::template Ss<true>(product, a + kStep, b + kStep);
    WgmmaE4m3<C::kProductN>::template Ss<true>(product, a + 2 * kStep, b + 2 * kStep);
    WgmmaE4m3<C::kProductN>::template Ss<true>(product, a + 3 * kStep, b + 3 * kStep);
    WgmmaCommit();
  }

  /// Brings the scales of the next k-block to registers and frees their slot.
  __device__ __forceinline__ void NextScales(StepScales<C>& s) {
    const uint32_t slot = scale_at.stage * (C::kScaleFloats * 4);
    shared.scales.WaitFull(scale_at);
    const float b0 = LoadShared(scales_b + slot);
    const float b1 = C::kScaleColumns == 128 ? 0.0f : LoadShared(scales_b + slot + 4);
#pragma unroll
    for (int m = 0; m < C::kBlocksM; ++m) {
      const float a0 = LoadShared(scales_a + slot + m * 64 * 4),
                  a1 = LoadShared(scales_a + slot + (m * 64 + 8) * 4);
#pragma unroll
      for (int g = 0; g < C::kScaleGroups; ++g) {
        const float b = C::kScaleColumns == 128 ? b0 : g * C::kScaleColumns < boundary ? b0 : b1;
        s.x[m][g][0] = a0 * b;
        s.x[m][g][1] = a1 * b;
      }
    }
    __syncwarp();
    shared.scales.template Release<1>(scale_at.stage, lane);
    scale_at.Advance();
  }

  /// sum += scales * product, for product `i`.
  __device__ __forceinline__ void Promote(int i, const StepScales<C>& s) {
    const int m = i / C::kProductsN, h = i % C::kProductsN;
    FenceRegisters(product);
#pragma unroll
    for (int n8 = 0; n8 < C::kProductN / 8; ++n8) {
      const int column = h * C::kProductN + n8 * 8;
      const float x0 = s.x[m][column / C::kScaleColumns][0],
                  x1 = s.x[m][column / C::kScaleColumns][1];
      float* d = &sum[m][column / 2];
      const float* v = &product[n8 * 4];
      d[0] = fmaf(x0, v[0], d[0]);
      d[1] = fmaf(x0, v[1], d[1]);
      d[2] = fmaf(x1, v[2], d[2]);
      d[3] = fmaf(x1, v[3], d[3]);
    }
  }

  __device__ __forceinline__ void Stagger() const {
    const long long start = clock64();
    while (clock64() - start < stagger) {
    }
  }

  /// One k-block.
  __device__ __forceinline__ void Step() {
    if (!ready) {
      shared.ring.WaitFull(at);
      if (stagger > 0) Stagger();
    }
    const int stage = at.stage;
    at.Advance();
    StepScales<C> s;
#pragma unroll
    for (int i = 0; i < C::kProducts; ++i) {
      Issue(i, stage);
      if (i == 0) NextScales(s);
      if (i == C::kProducts - 1) ready = shared.ring.TestFull(at);
      WgmmaWait<0>();
      if (i == C::kProducts - 1) shared.ring.template Release<C::kMulticast>(stage, lane);
      Promote(i, s);
    }
  }

  /// Stores slab `i` (of kBlocksM * kSlabsN) of this warp's rows. The last slab of a row of slabs
  /// overlaps the one before where the columns are no multiple of 64: both write the same values.
  __device__ __forceinline__ void StoreSlab(int i, int buffer, uint8_t* slabs, int row,
                                            int column) {
    const int m = i / C::kSlabsN, s = i % C::kSlabsN;
    const int offset = s * 64 + 64 <= C::kColumns ? s * 64 : C::kColumns - 64;
    uint8_t* slab = slabs + buffer * C::kSlabBytes;
    if (lane == 0) TmaStoreWaitRead<C::kSlabs - 1>();
    __syncwarp();
    StoreSlab16x64(SharedAddress(slab), &sum[m][offset / 2], lane);
    FenceAsyncShared();
    __syncwarp();
    if (lane == 0) {
      if (row + m * 64 < p.m && column + offset < p.n)
        TmaStore(&p.d, slab, column + offset, row + m * 64);
      TmaStoreCommit();
    }
  }
};

/// Split K: exchanges partial sums over distributed shared memory. Afterwards CTA `rank` holds the
/// sums of registers [rank * kShare, (rank + 1) * kShare) of every thread, added in the order of
/// the parts, so results repeat bit by bit. The partial sums land in the stages, so a cluster of a
/// split kernel computes one tile (PlanLargeM sizes the grid).
template <class C>
__device__ __forceinline__ void ReduceSplit(Consumer<C>& c, LargeMShared<C>& shared,
                                            uint8_t* stages, int rank) {
  constexpr int kRegisters = C::kBlocksM * C::kColumns / 2;
  constexpr int kShare = kRegisters / C::kSplit;
  const int thread = threadIdx.x - 128;
  float* mine = &c.sum[0][0];
  __syncwarp();
  if (c.lane < C::kSplit) BarrierArriveRemote(&shared.peers_done, c.lane);
  BarrierWait(&shared.peers_done, 0);
  if (thread == 0) BarrierArriveExpect(&shared.partials, (C::kSplit - 1) * kShare * 4 * 256);
#pragma unroll
  for (int to = 0; to < C::kSplit; ++to) {
    if (to == rank) continue;
    const int slot = rank < to ? rank : rank - 1;
    const uint32_t base =
        MapToRank(SharedAddress(stages), to) + (slot * (kShare / 4) * 256 + thread) * 16;
    const uint32_t barrier = MapToRank(SharedAddress(&shared.partials), to);
#pragma unroll
    for (int j = 0; j < kShare / 4; ++j) {
      const float* v = mine + to * kShare + j * 4;
      StoreAsync(base + j * 256 * 16, make_float4(v[0], v[1], v[2], v[3]), barrier);
    }
  }
  BarrierWaitCluster(&shared.partials, 0);
  const float4* incoming = reinterpret_cast<const float4*>(stages) + thread;
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

template <class C>
__device__ __forceinline__ void Consume(const LargeMParams& p, LargeMShared<C>& shared,
                                        uint8_t* stages, uint8_t* slabs, const float* scale_slots,
                                        int rank, int kb_begin, int kb_end) {
  const int warp = WarpUniform(threadIdx.x / 32) - 4;
  const int group = warp / 4, lane = threadIdx.x % 32;
  const int group_m = group % C::kWarpgroupsM, group_n = group / C::kWarpgroupsM;
  const int row_offset = group_m * C::kBlocksM * 64, column_offset = group_n * C::kColumns;
  const uint32_t base = SharedAddress(stages);
  Consumer<C> c{p, shared, WgmmaDescriptor128(base + row_offset * kBlockK),
                WgmmaDescriptor128(base + C::kStageBytesA + column_offset * kBlockK)};
  c.scales_a = SharedAddress(scale_slots) + (row_offset + (warp % 4) * 16 + lane / 4) * 4;
  c.scales_b = SharedAddress(scale_slots) + (C::kTileM + group_n * 2) * 4;
  c.lane = lane;
  slabs += warp * C::kSlabs * C::kSlabBytes;
  const int clusters = gridDim.x / (C::kMulticast * C::kSplit);
  const int warp_row = row_offset + (warp % 4) * 16;
  int tile = blockIdx.x / (C::kMulticast * C::kSplit);
  c.stagger = C::kWarpgroups == 2 && group == 1 ? p.stagger : 0;
  c.ready = false;
  for (; tile < p.order.count(); tile += clusters) {
    const TilePlace place = PlaceOf<C>(p, tile, rank);
    const int row = place.row + warp_row, column = place.column + column_offset;
    c.boundary = 128 - column % 128;
#pragma unroll
    for (int m = 0; m < C::kBlocksM; ++m)
#pragma unroll
      for (int i = 0; i < C::kColumns / 2; ++i) c.sum[m][i] = 0.0f;
#pragma unroll 1
    for (int kb = kb_begin; kb < kb_end; ++kb) c.Step();
    constexpr int kAllSlabs = C::kBlocksM * C::kSlabsN;
    if constexpr (C::kSplit == 1) {
#pragma unroll
      for (int i = 0; i < kAllSlabs; ++i) c.StoreSlab(i, i % C::kSlabs, slabs, row, column);
    } else {
      ReduceSplit<C>(c, shared, stages, rank);
      constexpr int kShare = kAllSlabs / C::kSplit;
#pragma unroll
      for (int i = 0; i < kAllSlabs; ++i)
        if (i / kShare == rank) c.StoreSlab(i, i % C::kSlabs, slabs, row, column);
    }
  }
  if (lane == 0) TmaStoreWaitRead<0>();
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    LargeMGemm(const __grid_constant__ LargeMParams p) {
  extern __shared__ __align__(1024)
      uint8_t stages[];  // no static shared memory: starts at a multiple of 1024
  uint8_t* slabs = stages + C::kStages * (C::kStageBytesA + C::kStageBytesB);
  float* scale_slots =
      reinterpret_cast<float*>(slabs + C::kConsumerWarps * C::kSlabs * C::kSlabBytes);
  auto& shared =
      *reinterpret_cast<LargeMShared<C>*>(scale_slots + C::kScaleDepth * C::kScaleFloats);
  constexpr int kCluster = C::kMulticast * C::kSplit;
  const int rank = kCluster > 1 ? static_cast<int>(ClusterRank()) : 0;
  if (threadIdx.x == 0) {
    PrefetchTensorMap(&p.a);
    PrefetchTensorMap(&p.b);
    PrefetchTensorMap(&p.d);
    shared.ring.Init(FullArrivals(), EmptyArrivals(C::kConsumerWarps, C::kMulticast));
    shared.scales.Init(C::kScaleWarps, C::kConsumerWarps);
    BarrierInit(&shared.peers_done, C::kConsumerWarps * C::kSplit);
    BarrierInit(&shared.partials, 1);
    BarrierInitFence();
  }
  if constexpr (kCluster > 1) {
    ClusterSync();
  } else {
    __syncthreads();
  }
  GridDependencyWait();
  int kb_begin = 0, kb_end = p.k_blocks;
  if constexpr (C::kSplit > 1) SplitRange(p.k_blocks, C::kSplit, rank, kb_begin, kb_end);
  if (threadIdx.x < 128) {
    RegistersDown<C::kProducerRegisters>();
    const int warp = WarpUniform(threadIdx.x / 32);
    if (warp == 0) {
      if (ElectOne()) Produce<C>(p, shared, stages, rank, kb_begin, kb_end);
    } else if (warp <= C::kScaleWarps) {
      ProduceScales<C>(p, shared, scale_slots, rank, kb_begin, kb_end, warp - 1);
    }
  } else {
    RegistersUp<C::kConsumerRegisters>();
    Consume<C>(p, shared, stages, slabs, scale_slots, rank, kb_begin, kb_end);
  }
  if constexpr (C::kSplit > 1) ClusterSync();  // no CTA leaves while a peer may still write to it
}

}  // namespace culet::sm90
