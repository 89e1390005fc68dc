// What the host knows of the large-M kernels for Hopper: their schedules, their parameters and one
// launch record each. Everything counts bytes of K, so that one host side serves all formats.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>

#include "culet/layout/host_device.h"
#include "kernels/sm90/product/epilogue.h"
#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/product/product_launch.h"
#include "sm90/descriptor.h"
#include "sm90/scheduler.h"

namespace culet::sm90 {

/// How a kernel's CTAs divide the work; the rest of its configuration follows from it.
struct BlockSchedule {
  int tile_m, tile_n;                      ///< of a CTA
  int warpgroups_m = 2, warpgroups_n = 1;  ///< consumers of a tile along M and N
  int stages;                              ///< k-blocks in the ring
  int cluster_m = 1, cluster_n = 1;        ///< CTAs along M that share B, along N that share A
  int split = 1;                           ///< CTAs of a cluster that share a tile along K
  int slabs = 1;                           ///< store buffers of a warp, 16 rows of 128 bytes each
  int turns = 1;        ///< sets of consumers that take a CTA's tiles in turn: one set stores while
                        ///< another multiplies, which pays where K is short
  bool copies = false;  ///< A and B come by copies of 4 or 8 bytes, for rows that TMA cannot load
  bool grouped = false;  ///< rows of A by groups, each with a B of its own (BlockGroups)
  int lag = 0;           ///< clocks that each warpgroup along M begins behind the one before: one's
                         ///< epilogue then lies under the others' products
};

/// Two warpgroups side by side along N.
constexpr BlockSchedule SideBySide(BlockSchedule schedule) {
  schedule.warpgroups_m = 1, schedule.warpgroups_n = 2;
  return schedule;
}
/// Two sets of one warpgroup.
constexpr BlockSchedule InTurns(BlockSchedule schedule) {
  schedule.warpgroups_m = 1, schedule.turns = 2;
  return schedule;
}
/// Three warpgroups along M.
constexpr BlockSchedule OfThree(BlockSchedule schedule) {
  schedule.warpgroups_m = 3;
  return schedule;
}

/// Groups of rows of A, known on the device alone: rows [starts[g], starts[g] + counts[g]) of A and
/// D belong to group g and meet matrix g of B. Without counts a group ends where the next one
/// starts. Groups may lie anywhere, with gaps between them; what lies outside [0, m) is cut off. B
/// and its scales are a matrix for each group, one behind the other.
inline constexpr int kMostGroups = 512;
struct BlockGroups {
  const int* starts = nullptr;  ///< (count), or (count + 1) without counts
  const int* counts = nullptr;
  int count = 0;
  int tiles_n = 0;  ///< across N, of a group
};

/// The kernel's one argument.
struct BlockParams : ProductParams {
  CUtensorMap a;  ///< (k, m) bytes, box (128, tile_m / cluster_n)
  CUtensorMap b;  ///< (k, n) bytes, box (128, tile_n / cluster_m); of paired columns see
                  ///< PairedPlan and LanesPlan
  /// The same with boxes that end with the last row, for the tiles that reach beyond the matrix:
  /// the copy engine takes longer to fill a row with zeros than to load one. Equal to a, b and u
  /// where there are none.
  CUtensorMap a_rest, b_rest, u_rest;
  CUtensorMap d_map;  ///< (n, m), box (64, store_rows); not for F32 and codes, which are stored
                      ///< without a map
  CUtensorMap u;  ///< scales of A where they are blocks': (k / 128, m), box (4, tile_m), or (m, k /
                  ///< 128), box (tile_m, 4)
  CUtensorMap v;  ///< of B: (k / 128, n / 128), box (4, blocks that a tile can touch); of paired
                  ///< columns with a third axis for gate and up where each lies for itself
  bool d_has_map = false;
  bool u_rows_inner = false;      ///< u is (m, k / 128)
  bool scales_have_maps = false;  ///< u and v could be made
  bool scales_by_tma = false;     ///< and the scales' addresses of this call fit them
  int k_blocks = 0;               ///< of 128 bytes
  /// Of kernels that copy A and B, which have no maps for them: rows, and bytes of K.
  const char* a_rows = nullptr;
  const char* b_rows = nullptr;
  std::int64_t a_pitch = 0, b_pitch = 0;  ///< bytes from a row to the next
  int k_bytes = 0;                        ///< 0: the kernel has maps
  bool by_eights = false;                 ///< rows lie on 8 bytes, not on 4
  BlockGroups groups;                     ///< of kernels with BlockSchedule::grouped
  TileOrder order;                        ///< in runs of tiles of a whole cluster
  int idle_clusters = 0;                  ///< see BlockGrid
  bool b_leaves_first = false;            ///< B is loaded with evict_first

  bool Bind(const GemmOperands& operands);
  bool RowsLieOn8() const;
};

/// Between the largest B that mostly measured better kept (38 MB) and the smallest that measured
/// better leaving L2 first (58 MB, at M = 128); an H200 has 60 MB of L2, which A, D and other
/// launches share.
inline constexpr std::int64_t kKeptBBytes = 50 << 20;

/// Whether B, of so many bytes, makes room in L2 for everything else: where it is large, and swept
/// once.
constexpr bool BLeavesFirst(const TileOrder& order, std::int64_t bytes) {
  return order.sweeps_once() && bytes > kKeptBBytes;
}

/// One compiled kernel.
struct BlockKernel {
  std::string id;  ///< sm90_<format>_block/<tile>/<cluster>/<stages>[/<split>][/<turns>][/f32]
  const void* function;
  const void* of_halves = nullptr;  ///< for gate and up in halves, where that is another function
  const FormatInfo* format;
  EpilogueKind epilogue;
  OutputType output;  ///< of a plain epilogue; others have D's type at run time
  int tile_m, tile_n;
  int cluster_m, cluster_n;        ///< CTAs that share B tiles, A tiles
  int split;                       ///< CTAs of a cluster that share one tile along K
  int warpgroups_m, warpgroups_n;  ///< consumers of a tile along M, N
  int turns;                       ///< sets of them
  int run = 1;                     ///< tiles along N that a CTA takes one after the other
  int stages;
  int store_rows;    ///< of a box of D: 64, by a warpgroup, or 16, by a warp
  int scale_blocks;  ///< blocks of 128 columns that a tile can touch
  bool by_lanes;     ///< B comes by LanesPlan
  bool grouped;      ///< rows by groups
  bool copies;       ///< A and B come without maps
  int output_bytes;  ///< of an element of D, 2 or 4; 0 where its type is known at run time
  int smem_bytes;
  int threads;
  int registers;  ///< a thread at launch; setmaxnreg redistributes them

  constexpr int cluster_size() const { return cluster_m * cluster_n * split; }
  /// Elements of K in a k-block, which is a row of an operand's tile.
  constexpr int block_k() const { return kBlockBytes / format->element_bytes; }
};

/// The CTAs of a launch, in clusters as the kernel was compiled for.
///
/// Under programmatic dependent launch the next kernel's first CTAs start on multiprocessors that
/// this one leaves free, the others where its CTAs end, one by one. From launch to launch the work
/// then gathers in fewer GPCs and neighbours in the tile order, which read the same operand, in
/// different TPCs: up to 1.4 times as long (docs/hopper-lessons.md). So a launch that fills more
/// than half of the chip takes every place: CTAs without a tile come first, and stay until the
/// kernel before has ended. And CTAs start in pairs, which share a TPC. Where half is free
/// launches alternate between the halves, and neither is needed.
struct BlockGrid {
  int clusters = 0;
  int idle_clusters = 0;  ///< the first ones, without a tile
  bool in_pairs = false;  ///< launched as clusters of two, of CTAs that know nothing of each other
};

/// `sms`: multiprocessors, each with room for one CTA.
BlockGrid GridOf(const BlockKernel& kernel, int tiles, int sms, bool pdl);

/// All kernels of the families, the formats one after the other.
std::span<const BlockKernel> BlockKernels();

using BlockLaunch = ProductLaunch<BlockParams>;

/// Plans a launch. `swizzle` is the log2 of the supergroup (a split kernel's
/// always is 8 rows), `sms` the multiprocessors to use. Of problem.epilogue the scales, C, the bias
/// and the types count where the kernel's epilogue is general; alpha is problem.alpha. False when a
/// tensor map cannot be made or k is too short to split.
bool PlanBlock(const BlockKernel& kernel, const ProductProblem& problem, int swizzle, int sms,
               BlockLaunch* launch);

/// The kernels whose rows lie by groups.
std::span<const BlockKernel> GroupedBlocks();

/// Plans a launch of one of them: problem.m rows of A and D at most, problem.b and problem.scale_b
/// groups.count matrices of (problem.n, problem.k), one behind the other. False when a tensor map
/// cannot be made or there are more than kMostGroups.
bool PlanGroupedBlock(const BlockKernel& kernel, const ProductProblem& problem,
                      const BlockGroups& groups, int sms, BlockLaunch* launch);

}  // namespace culet::sm90
