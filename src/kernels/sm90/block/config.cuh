// Compile-time configuration of a large-M kernel, with its register and shared-memory budget.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/block.h"
#include "kernels/sm90/product/operand_map.h"
#include "kernels/sm90/product/policy.h"
#include "sm90/format.h"
#include "sm90/pipeline.cuh"
#include "sm90/scheduler.h"

namespace culet::sm90 {

/// A configuration: a schedule, a format's policy (policy.h) and an epilogue (block/finish.cuh).
template <BlockSchedule kSchedule, class Policy_, class Epilogue_>
struct BlockConfig {
  using Policy = Policy_;
  using Format = typename Policy::Format;
  using Epilogue = Epilogue_;
  static constexpr Sums kSums = Policy::kInfo.sums;
  static constexpr int kTileM = kSchedule.tile_m, kTileN = kSchedule.tile_n,
                       kWarpgroupsM = kSchedule.warpgroups_m, kWarpgroupsN = kSchedule.warpgroups_n;
  static constexpr int kStages = kSchedule.stages;
  static constexpr int kClusterM = kSchedule.cluster_m, kClusterN = kSchedule.cluster_n,
                       kSplit = kSchedule.split;
  static constexpr int kMulticast = kClusterM * kClusterN;
  static constexpr int kSlabs = kSchedule.slabs, kTurns = kSchedule.turns, kLag = kSchedule.lag;
  /// A and B are loaded 4 or 8 bytes at a time (block/copy.cuh); D is stored from registers.
  static constexpr bool kCopies = kSchedule.copies;
  static constexpr bool kGrouped = kSchedule.grouped;
  static constexpr bool kScaled = kSums == Sums::kBlockScaled;
  static constexpr bool kPromotes = kSums != Sums::kDirect;
  static constexpr bool kPlain = Epilogue::kKind == EpilogueKind::kPlain;
  static constexpr bool kGated = IsGated(Epilogue::kKind);
  /// Row and column scales are copied to shared memory while a tile is multiplied
  /// (block/factors.cuh).
  static constexpr bool kBringsFactors =
      Epilogue::kKind == EpilogueKind::kGeneral && !kScaled && Policy::kInfo.element_bytes == 1;
  static constexpr bool kQuantises = Epilogue::kKind == EpilogueKind::kGatedQuant;
  /// B's rows are permuted so that a lane holds 16 neighbouring columns of D (LanesPlan) and stores
  /// its codes directly; otherwise groups of 4 lanes exchange theirs. Warpgroups of 256 columns
  /// gain little by it, and 16-bit ones spill.
  static constexpr bool kByLanes =
      kQuantises && kSplit == 1 && kClusterM == 1 && kTileN / kWarpgroupsN == 128;
  /// The columns of one scale are spread over a cluster's CTAs along N (StoreQuantisedShared).
  static constexpr bool kSharesScales = kQuantises && kClusterN > 1;
  static constexpr int kSharers = kClusterN * kWarpgroupsN;  // warpgroups that have a row's columns
  static constexpr int kTileWarpgroups = kWarpgroupsM * kWarpgroupsN;  // consumers of a tile
  static constexpr int kWarpgroups = kTileWarpgroups * kTurns;         // the producer is one more
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kBlocksM = kTileM / kWarpgroupsM / 64;  // m64 blocks of a warpgroup
  static constexpr int kColumns = kTileN / kWarpgroupsN;       // of a warpgroup
  // Columns of one product. Registers do not hold two accumulators of 256 columns, nor of 192 with
  // three warpgroups.
  static constexpr int kBlocksN =
      kPromotes && (kColumns == 256 || (kColumns == 192 && kWarpgroupsM == 3)) ? 2 : 1;
  static constexpr int kProductColumns = kColumns / kBlocksN;
  static constexpr int kBlocks = kBlocksM * kBlocksN;  // products of a warpgroup's k-block
  // Two accumulators, one per k-block, where registers allow: a warpgroup's promotion then hides
  // under its own next product, not only under the other warpgroup's. Without scales, clusters are
  // faster with one (H100).
  static constexpr bool kTwoInFlight = (kScaled || (kPromotes && kMulticast == 1)) &&
                                       kBlocksM == 1 && kWarpgroups == 2 && kColumns <= 128;
  // A tile's first scaled product overwrites the sums, so they need no clearing.
  static constexpr bool kFirstOverwrites = kScaled && !kTwoInFlight;
  // Unrolled k-blocks with two products in flight. Each unrolled body ends by waiting for both
  // (200 to 300 clocks), but longer code costs instruction cache and registers: 112 columns spill
  // beyond four, 64 columns are slower beyond eight (the ring's stages), and a split 128 x 128
  // gains nothing.
  static constexpr int kStraightBlocks = kColumns == 64                                       ? 8
                                         : kColumns == 96 || (kColumns == 128 && kSplit == 1) ? 16
                                                                                              : 4;
  // Alpha multiplies a tile's sums, not each k-block's scales, where that is less unrolled work or
  // where sums are stored in pairs or fours: separate result registers let ptxas place the sums
  // free of register bank conflicts in the promotion.
  static constexpr bool kAlphaLast = !kPlain || kTwoInFlight || Epilogue::kStoresSums || kSplit > 1;
  // Columns of C that four threads load at a time: as many as registers hold beside the sums.
  static constexpr int kAskedBeside = Policy::kInfo.element_bytes == 2 ? 256 : 192;
  static constexpr int kAsked = kBlocksM * kColumns <= kAskedBeside && !kGated ? 8 : 4;
  static constexpr int kStageBytesA = kTileM * kBlockBytes, kStageBytesB = kTileN * kBlockBytes;
  static constexpr int kStageBytes = kStageBytesA + kStageBytesB;
  static constexpr int kSlabBytes = 16 * 128;
  static constexpr int kColumnsOfD = kGated ? kColumns / 2 : kColumns;  // of a warpgroup
  // Tiles along N that a CTA computes in sequence: together the 128 columns of D of one scale.
  static constexpr int kRun = kQuantises ? 128 / kColumnsOfD / kWarpgroupsN / kClusterN : 1;
  static constexpr int kSlabsN = kQuantises ? 1 : (kColumnsOfD + 63) / 64;  // slabs across them
  static constexpr int kAllSlabs = kBlocksM * kSlabsN;                      // of a warp
  // Rows of a TMA box of D. One box of 64 rows for a warpgroup's four warps is faster than four of
  // 16, unless a tile reuses its store buffer: then all four warps would wait for it to be read.
  static constexpr int kStoreRows = kSlabs == 1 && kAllSlabs > 1 ? 16 : 64;
  // Wait for the previous tile's store to have read the buffers under the tile's own products.
  // Unrolled code (two in flight) is 1 to 2 % slower with it.
  static constexpr bool kWaitsUnder = !kTwoInFlight && kSplit == 1 && !Epilogue::kStoresSums &&
                                      !kGated && !kCopies && kAllSlabs <= kSlabs;
  // Split K: the other CTAs' sums replace the store buffers if they fit (each CTA computes one
  // tile, stored through the stages), else they lie at the start of the stages.
  // A quantising kernel exchanges groups of 8 whole rows instead.
  static constexpr bool kSplitsRows = kQuantises && kSplit > 1;
  static constexpr int kRowEights = 8 * kWarpgroupsM;
  static constexpr int kOwnedEights = (kRowEights + kSplit - 1) / kSplit;  // of a CTA, at most
  static constexpr int kPartialBytes =
      kSplitsRows ? (kSplit - 1) * kOwnedEights * 8 * kTileN * 4
                  : (kSplit - 1) * (kBlocksM * kColumns / 2 / kSplit) * 4 * 128 * kWarpgroups;
  // Columns certain to share a B scale: tiles and warpgroups start at multiples of it.
  static constexpr int kScaleColumns = kTileN % 128 == 0 && kColumns % 128 == 0 ? 128
                                       : kTileN % 64 == 0 && kColumns % 64 == 0 ? 64
                                       : kTileN % 32 == 0 && kColumns % 32 == 0 ? 32
                                                                                : 16;
  /// Scale groups span both halves of a warpgroup's columns if a half ends inside a group.
  static constexpr bool kGroupsAcross = kBlocksN > 1 && kProductColumns % kScaleColumns != 0;
  static constexpr int kScaleGroups = (kGroupsAcross ? kColumns : kProductColumns) / kScaleColumns;
  /// With gate in one half of B and up in the other, a tile's gate columns and up columns have
  /// different scales. If B interleaves gate and up, scales are as in a plain product.
  static constexpr bool kPairsScales = kGated && kScaled;
  /// A tile may begin inside a scale block and so touch two blocks of each half.
  static constexpr bool kPairsCross = kPairsScales && kScaleColumns < 64;
  static constexpr int kPairGroups = kPairsCross ? kColumns / kScaleColumns * 2 : 2;
  // A quad holds the scales of four k-blocks (16 bytes per row of A and per block of 128 columns
  // that a tile can touch) and the tile's place. Two quads cover five stages.
  static constexpr int kProductScaleBlocks =
      kTileN % 128 == 0 ? kTileN / 128 : (kTileN + 128 - kScaleColumns + 127) / 128;
  static constexpr int kHalfScaleBlocks = kPairsCross ? 2 : 1;  // of gate, and as many of up
  static constexpr int kScaleBlocks = kPairsScales && 2 * kHalfScaleBlocks > kProductScaleBlocks
                                          ? 2 * kHalfScaleBlocks
                                          : kProductScaleBlocks;
  static constexpr int kQuadB = kTileM * 16;
  static constexpr int kQuadPlace = kQuadB + kScaleBlocks * 16;
  static constexpr int kQuadBytes = (kQuadPlace + 8 + 127) / 128 * 128;
  static constexpr int kQuadLoadBytes = kQuadPlace;  // by TMA
  static constexpr int kQuads = !kScaled ? 0 : kStages <= 5 ? 2 : 3;
  // Shared memory: stages, store buffers, quads, barriers.
  static constexpr int kBarrierBytes =
      8 * (2 * kStages + 2 + (kSharesScales ? 2 * kTileM / 16 : 0)) +
      (kGrouped ? kStages * sizeof(Tile) + (kMostGroups + 2) * 4 : 0);  // BlockShared
  // Each row's largest magnitude, per warpgroup that shares the row's scale; double-buffered over
  // tiles if other CTAs write it.
  static constexpr int kLargestBytes = kQuantises && kSharers > 1
                                           ? (kSharesScales ? 2 : 1) * kSharers* kTileM * 4
                                           : 0;
  static constexpr int kFactors = kBlocksM * 64 + kColumns;  // of a warpgroup: rows, then columns
  static constexpr int kFactorBytes = kBringsFactors ? kWarpgroups * kFactors * 4 : 0;
  static constexpr int kOtherBytes =
      kStages * kStageBytes + kQuads * kQuadBytes + kLargestBytes + kFactorBytes + kBarrierBytes;
  static constexpr int kMostBytes = 232448;  // shared memory of a CTA
  static constexpr bool kOwnPartials = kSplit > 1 && kOtherBytes + kPartialBytes <= kMostBytes;
  static constexpr bool kHasSlabs = kSplit == 1 && (!kQuantises || kRun > 1);
  static constexpr int kSlabsBytes = kHasSlabs      ? kConsumerWarps * kSlabs * kSlabBytes
                                     : kOwnPartials ? kPartialBytes
                                                    : 0;
  static constexpr int kSlabsAt = kStages * kStageBytes;
  static constexpr int kQuadsAt = kSlabsAt + kSlabsBytes;
  static constexpr int kLargestAt = kQuadsAt + kQuads * kQuadBytes;
  static constexpr int kFactorsAt = kLargestAt + kLargestBytes;
  static constexpr int kBarriersAt = kFactorsAt + kFactorBytes;
  static constexpr int kSmemBytes = kBarriersAt + kBarrierBytes;
  // 64 Ki registers = 128 x (producer + 2 x consumer); multiples of 8.
  static constexpr int kProducerRegisters = kCopies ? 56 : kWarpgroups == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kCopies ? 224 : kWarpgroups == 3 ? 160 : 232;

  static_assert(kWarpgroups == 2 || kWarpgroups == 3);
  static_assert(!kGrouped || (kMulticast == 1 && kSplit == 1 && kTurns == 1 && kRun == 1 &&
                              !kQuantises && !kCopies && kPlain));
  static_assert(!kCopies || (kWarpgroups == 2 && kMulticast == 1 && kTurns == 1 && !kGated));
  static_assert(kTurns == 1 || (!kPromotes && kSplit == 1 && kRun == 1),
                "quads, sums of a cluster and runs are one tile's at a time");
  static_assert(kTileM % (64 * kWarpgroupsM) == 0 && kTileN % kWarpgroupsN == 0);
  static_assert(kColumns >= 64 && kColumns % 16 == 0 && kTileN % (8 * kClusterM) == 0);
  static_assert(kBlocksM == 1 || kBlocksN == 1);
  static_assert(kBlocksM <= 2 || (kBlocksM == 3 && kSums == Sums::kDirect));
  static_assert(kMulticast == 1 || kSplit == 1, "a cluster either shares operands or splits K");
  static_assert(kSplit == 1 || kWarpgroups == 2);
  static_assert(kSchedule.lag == 0 || (kWarpgroupsM > 1 && kTurns == 1));
  static_assert(kRun == 1 || kMulticast == 1,
                "runs in clusters gave wrong results where a CTA had no columns");
  static_assert(!Epilogue::kStoresSums || kSplit == 1);
  static_assert(!kSplitsRows || (kRun == 1 && kBlocksM == 1));
  static_assert(!kPairsCross || (kScaleColumns == 32 && kWarpgroupsN == 1 && kBlocksN == 1),
                "a group is sixteen columns of gate and of up");
  static_assert(!kGated || kColumnsOfD % 8 == 0);
  static_assert(!kQuantises ||
                    (kBlocksM == 1 && kRun * kWarpgroupsN * kClusterN * kColumnsOfD == 128 &&
                     kSlabs == kRun),
                "all columns of a scale in a run; a warp's slabs keep those of its first tile");
  static_assert(!kByLanes || kColumns == kLaneBox);
  static_assert(!kSharesScales ||
                ((kSharers == 4 || kSharers == 2) && kClusterM == 1 && kTurns == 1 && kSplit == 1));
  static_assert(!kQuantises || kWarpgroupsN == 1 || (kWarpgroupsM == 1 && kTurns == 1));
  // Split K: each CTA reduces and stores some columns of one m64 block of every warpgroup.
  static_assert(kSplit % kBlocksM == 0 || kSplit == 1);
  static constexpr int kShareColumns =
      kSplit > 1 && !kSplitsRows ? kBlocksM * kColumns / kSplit : kColumns;
  static_assert(kShareColumns % 16 == 0);
  static_assert(!kScaled || (kScaleBlocks <= 4 && kTileM % 32 == 0));
  static_assert(!kScaled || kScaleColumns < 128 || kScaleGroups == 1,
                "one B scale a warpgroup where it is aligned");
  static constexpr int kLastSlabs = kOwnPartials ? 0 : kPartialBytes;  // in the stages
  static_assert(kLastSlabs + kConsumerWarps * kAllSlabs * kSlabBytes <= kStages * kStageBytes,
                "the last tile's slabs");
  static_assert(kSmemBytes <= kMostBytes);
};

/// Elements of D in 16 bytes, if D is stored by TMA.
constexpr int kElementsOfPiece = 8;

/// The 8-column groups of a warpgroup's sums (4 sums per thread) that hold gate and up of pair
/// `pair` of a thread's columns of D.
template <class C>
__host__ __device__ constexpr int GateGroup(int pair) {
  return C::kByLanes ? pair : pair * 2;
}
template <class C>
__host__ __device__ constexpr int UpGroup(int pair) {
  return GateGroup<C>(pair) + (C::kByLanes ? 8 : 1);
}
template <class C>
__host__ __device__ constexpr bool IsUpGroup(int group) {
  return group / (C::kByLanes ? 8 : 1) % 2 == 1;
}

/// The column of D of a thread's value `i`, in accumulator layout with four values per pair.
template <class C>
__device__ __forceinline__ int ColumnOfValue(int i, int lane) {
  return C::kByLanes ? lane % 4 * kLaneColumns + i % 2 * 8 + i / 4
                     : i / 4 * 8 + lane % 4 * 2 + i % 2;
}

}  // namespace culet::sm90
