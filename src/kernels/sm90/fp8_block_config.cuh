// What a large-M kernel is made of: its configuration, its shared memory, a CTA's place.
#pragma once

#include <cstdint>

#include "kernels/sm90/fp8_block.h"
#include "sm90/descriptor.h"
#include "sm90/pipeline.cuh"
#include "sm90/scheduler.h"

namespace culet::sm90 {

/// A configuration and what follows from it.
///   kTileM x kTileN   tile of a CTA
///   kWarpgroupsM, N   consumer warpgroups along M and N, two or three together
///   kProductN         columns of one product
///   kClusterM         CTAs along M that share B tiles; kClusterN along N that share A tiles
///   kSplit            CTAs of a cluster that share a tile along K
///   kFloat32          D is F32, and stored without slabs
template <int kTileM_, int kTileN_, int kWarpgroupsM_, int kWarpgroupsN_, int kProductN_,
          int kStages_, int kClusterM_, int kClusterN_, int kSplit_, int kSlabs_,
          bool kFloat32_ = false>
struct Fp8BlockConfig {
  static constexpr int kTileM = kTileM_, kTileN = kTileN_, kWarpgroupsM = kWarpgroupsM_,
                       kWarpgroupsN = kWarpgroupsN_;
  static constexpr int kProductN = kProductN_, kStages = kStages_;
  static constexpr int kClusterM = kClusterM_, kClusterN = kClusterN_, kSplit = kSplit_;
  static constexpr int kSlabs = kSlabs_;  // store buffers of a warp
  static constexpr bool kFloat32 = kFloat32_;
  static constexpr int kWarpgroups =
      kWarpgroupsM * kWarpgroupsN;  // consumers; the producer is one more
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kBlocksM = kTileM / kWarpgroupsM / 64;  // m64 blocks of a warpgroup
  static constexpr int kColumns = kTileN / kWarpgroupsN;       // columns of a warpgroup
  static constexpr int kProductsN = kColumns / kProductN;
  static constexpr int kProducts = kBlocksM * kProductsN;  // of a warpgroup in a k-block
  // Two accumulators for products of two k-blocks, where registers allow: a warpgroup's promotion
  // then hides under its own next product, not only under the other warpgroup's.
  static constexpr bool kTwoInFlight = kProducts == 1 && kWarpgroups == 2 && kProductN <= 128;
  // k-blocks of straight-line code where there are two: at its end both have been waited for, which
  // costs 200 to 300 clocks, but code costs instruction cache and registers: products of 112
  // columns spill beyond four, those of 64 are slower beyond the stages of the ring, which eight go
  // around once, and a split 128 x 128 gains nothing.
  static constexpr int kStraightBlocks = kProductN == 64                                        ? 8
                                         : kProductN == 96 || (kProductN == 128 && kSplit == 1) ? 16
                                                                                                : 4;
  // Alpha multiplies the sums of a tile, not the scales of each k-block, where that is less to do
  // in straight-line code, and where sums are stored in pairs or fours: registers of their own for
  // the results leave the sums free to lie where promotion reads no two operands from one bank.
  static constexpr bool kAlphaLast = kTwoInFlight || kFloat32 || kSplit > 1;
  static constexpr int kMulticast = kClusterM * kClusterN;
  static constexpr int kStageBytesA = kTileM * kBlockK, kStageBytesB = kTileN * kBlockK;
  static constexpr int kSlabBytes = 16 * 128;
  static constexpr int kSlabsN = (kColumns + 63) / 64;  // slabs across a warpgroup's columns
  static constexpr int kAllSlabs = kBlocksM * kSlabsN;  // of a warp
  // Rows of a box of D. A warpgroup's four warps store together: one box of 64 rows leaves sooner
  // than four of 16. Not where several slabs of a tile take turns in one buffer: all four warps
  // would wait until it has been read.
  static constexpr int kStoreRows = kSlabs == 1 && kAllSlabs > 1 ? 16 : 64;
  // Split K: the other parts' sums, in place of the slabs where they fit (each CTA computes one
  // tile, stored through the stages), else at the start of the stages.
  static constexpr int kPartialBytes =
      (kSplit - 1) * (kBlocksM * kColumns / 2 / kSplit) * 4 * 128 * kWarpgroups;
  // Columns that share a B scale for sure: tiles and warpgroups start at multiples of it.
  static constexpr int kScaleColumns = kTileN % 128 == 0 && kColumns % 128 == 0 ? 128
                                       : kTileN % 64 == 0 && kColumns % 64 == 0 ? 64
                                       : kTileN % 32 == 0 && kColumns % 32 == 0 ? 32
                                                                                : 16;
  static constexpr int kScaleGroups = kColumns / kScaleColumns;
  // A quad: the scales of four k-blocks, 16 bytes a row of A and as much for each block of 128
  // columns that a tile can touch, and the tile's place. Two quads cover five stages.
  static constexpr int kScaleBlocks =
      kTileN % 128 == 0 ? kTileN / 128 : (kTileN + 128 - kScaleColumns + 127) / 128;
  static constexpr int kQuadB = kTileM * 16;
  static constexpr int kQuadPlace = kQuadB + kScaleBlocks * 16;
  static constexpr int kQuadBytes = (kQuadPlace + 8 + 127) / 128 * 128;
  static constexpr int kQuadLoadBytes = kQuadPlace;  // by TMA
  static constexpr int kQuads = kStages <= 5 ? 2 : 3;
  static constexpr int kOtherBytes =
      kStages * (kStageBytesA + kStageBytesB) + kQuads * kQuadBytes + 8 * (2 * kStages + 2);
  static constexpr int kMostBytes = 232448;  // shared memory of a CTA
  static constexpr bool kOwnPartials = kSplit > 1 && kOtherBytes + kPartialBytes <= kMostBytes;
  static constexpr int kSlabsBytes = kSplit == 1    ? kConsumerWarps * kSlabs * kSlabBytes
                                     : kOwnPartials ? kPartialBytes
                                                    : 0;
  static constexpr int kSmemBytes = kOtherBytes + kSlabsBytes;
  // 64 Ki registers = 128 x (producer + 2 x consumer); multiples of 8.
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 232;

  static_assert(kWarpgroups == 2 || kWarpgroups == 3);
  static_assert(kTileM % (64 * kWarpgroupsM) == 0 && kColumns % kProductN == 0);
  static_assert(kColumns >= 64 && kColumns % 16 == 0 && kTileN % (8 * kClusterM) == 0);
  static_assert(kBlocksM == 1 || kBlocksM == 2);
  static_assert(kMulticast == 1 || kSplit == 1, "a cluster either shares operands or splits K");
  static_assert(kSplit == 1 || kWarpgroups == 2);
  static_assert(!kFloat32 || kSplit == 1);
  // Split K: each CTA sums and stores some columns of one m64 block of every warpgroup.
  static_assert(kSplit % kBlocksM == 0 || kSplit == 1);
  static constexpr int kShareColumns = kSplit > 1 ? kBlocksM* kColumns / kSplit : kColumns;
  static_assert(kShareColumns % 16 == 0);
  static_assert(kScaleBlocks <= 3 && kTileM % 32 == 0);
  static_assert(kScaleColumns < 128 || kScaleGroups == 1,
                "one B scale a warpgroup where it is aligned");
  static constexpr int kLastSlabs = kOwnPartials ? 0 : kPartialBytes;  // in the stages
  static_assert(kLastSlabs + kConsumerWarps * kAllSlabs * kSlabBytes <=
                    kStages * (kStageBytesA + kStageBytesB),
                "the last tile's slabs");
  static_assert(kSmemBytes <= kMostBytes);
};

template <class C>
struct Fp8BlockShared {
  Ring<C::kStages> ring;
  uint64_t peers_done;  // split K: all consumer warps of the cluster have left their stages
  uint64_t partials;    // split K: the other parts of this CTA's share have arrived
};

/// Where a CTA is in the output.
struct TilePlace {
  int row, column;
};

/// The first tile of this CTA's cluster; below 0, or order.count() and more, where it has none.
template <class C>
__device__ __forceinline__ int FirstTile(const Fp8BlockParams& p) {
  return static_cast<int>(blockIdx.x / (C::kMulticast * C::kSplit)) - p.idle_clusters;
}

template <class C>
__device__ __forceinline__ TilePlace PlaceOf(const Fp8BlockParams& p, int index, int rank) {
  int tm, tn;
  p.order.At(index, tm, tn);
  const int rm = C::kMulticast > 1 ? rank % C::kClusterM : 0,
            rn = C::kMulticast > 1 ? rank / C::kClusterM : 0;
  return {(tm * C::kClusterM + rm) * C::kTileM, (tn * C::kClusterN + rn) * C::kTileN};
}

}  // namespace culet::sm90
