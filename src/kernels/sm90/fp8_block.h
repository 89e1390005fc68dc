// What the host knows of the large-M block-scaled FP8 kernels for Hopper: their parameters and one
// launch record each.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "kernels/sm90/block_scaled.h"
#include "sm90/descriptor.h"
#include "sm90/scheduler.h"

namespace culet::sm90 {

/// Bytes of a row of every operand tile, and K elements that share one scale.
inline constexpr int kBlockK = 128;

/// The kernel's one argument. Strides of scales are in elements, so either order of U and V is
/// served.
struct Fp8BlockParams {
  CUtensorMap a;  ///< (k, m) bytes, box (128, tile_m / cluster_n)
  CUtensorMap b;  ///< (k, n) bytes, box (128, tile_n / cluster_m)
  CUtensorMap d;  ///< (n, m) BF16, box (64, store_rows); not for F32
  CUtensorMap u;  ///< scales of A: (k / 128, m), box (4, tile_m), or (m, k / 128), box (tile_m, 4)
  CUtensorMap v;  ///< scales of B: (k / 128, n / 128), box (4, blocks that a tile can touch)
  void* out = nullptr;   ///< D, for what is stored without a map
  std::int64_t ldd = 0;  ///< elements
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  float alpha = 1.0f;
  int scale_a_row = 0;     ///< between rows of A
  int scale_a_block = 0;   ///< between blocks of K
  int scale_b_column = 0;  ///< between blocks of N
  int scale_b_block = 0;
  bool is_f32 = false;            ///< D
  bool u_rows_inner = false;      ///< u is (m, k / 128)
  bool scales_have_maps = false;  ///< u and v could be made
  bool scales_by_tma = false;     ///< and the scales' addresses of this call fit them
  int m = 0;
  int n = 0;
  int k_blocks = 0;             ///< ceil(k / 128)
  TileOrder order;              ///< in tiles of a whole cluster
  int idle_clusters = 0;        ///< see Fp8BlockGrid
  bool b_leaves_first = false;  ///< B is loaded with evict_first
};

/// Between the largest B that mostly measured better kept (38 MB) and the smallest that measured
/// better leaving L2 first (58 MB, at M = 128); an H200 has 60 MB of L2, which A, D and other
/// launches share.
inline constexpr std::int64_t kKeptBBytes = 50 << 20;

/// Whether B makes room in L2 for everything else: where it is large, and swept once.
constexpr bool BLeavesFirst(const TileOrder& order, int n, int k) {
  return order.sweeps_once() && std::int64_t{n} * k > kKeptBBytes;
}

/// One compiled kernel. `id` names it: family/tile/cluster/stages[/split][/f32].
struct Fp8BlockKernel {
  const char* id;
  const void* function;
  int tile_m, tile_n;
  int cluster_m, cluster_n;        ///< CTAs that share B tiles, A tiles
  int split;                       ///< CTAs of a cluster that share one tile along K
  int warpgroups_m, warpgroups_n;  ///< consumers along M, N
  int stages;
  int store_rows;    ///< of a box of D: 64, by a warpgroup, or 16, by a warp
  int scale_blocks;  ///< blocks of 128 columns that a tile can touch
  int output_bytes;  ///< of an element of D: 2 is BF16, 4 is F32
  int smem_bytes;
  int threads;
  int registers;  ///< a thread at launch; setmaxnreg redistributes them

  constexpr int cluster_size() const { return cluster_m * cluster_n * split; }
};

/// The CTAs of a launch, in clusters as the kernel was compiled for.
///
/// Under programmatic dependent launch the next kernel's first CTAs start on multiprocessors that
/// this one leaves free, the others where its CTAs end, one by one. From launch to launch the work
/// then gathers in fewer GPCs and neighbours in the tile order, which read the same operand, in
/// different TPCs: up to 1.4 times as long (docs/performance-log.md). So a launch that fills more
/// than half of the chip takes every place: CTAs without a tile come first, and stay until the
/// kernel before has ended. And CTAs start in pairs, which share a TPC. Where half is free
/// launches alternate between the halves, and neither is needed.
struct Fp8BlockGrid {
  int clusters = 0;
  int idle_clusters = 0;  ///< the first ones, without a tile
  bool in_pairs = false;  ///< launched as clusters of two, of CTAs that know nothing of each other
};

/// `sms`: multiprocessors, each with room for one CTA.
Fp8BlockGrid GridOf(const Fp8BlockKernel& kernel, int tiles, int sms, bool pdl);

/// All kernels of the family.
std::span<const Fp8BlockKernel> Fp8BlockKernels();

struct Fp8BlockLaunch {
  const Fp8BlockKernel* kernel = nullptr;
  Fp8BlockParams params;
  int ctas = 0;
  int cluster_size = 1;
  bool pdl = false;
};

/// Everything but the stream, made once. `swizzle` is the log2 of the supergroup (a split kernel's
/// always is 8 rows), `sms` the multiprocessors to use. False when a tensor map cannot be made or k
/// is too short to split.
bool PlanFp8Block(const Fp8BlockKernel& kernel, const BlockScaledProblem& problem, int swizzle,
                  int sms, Fp8BlockLaunch* launch);

/// Exchanges the operands that change between calls: only addresses are patched in the maps. They
/// keep their alignment class. False without a driver.
bool RebindFp8Block(const void* a, const float* scale_a, void* d, float alpha,
                    Fp8BlockLaunch* launch);

/// Loads the kernel on the current device and raises its shared-memory limit; not during a stream
/// capture.
cudaError_t LoadFp8Block(const Fp8BlockKernel& kernel);

cudaError_t LaunchFp8Block(const Fp8BlockLaunch& launch, cudaStream_t stream);

}  // namespace culet::sm90
