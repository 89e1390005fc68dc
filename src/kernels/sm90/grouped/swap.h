// What the host knows of the grouped kernels for Hopper with tiles of wgmma: D^T = B A^T, so a
// group of few rows costs few.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <span>

#include "kernels/sm90/grouped/problem.h"
#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/policy.h"

namespace culet::sm90 {

inline constexpr int kMostRowBoxes = 9;

/// The kernel's one argument.
struct GroupedSwapParams : GroupedParams {
  CUtensorMap b;  ///< (k bytes, rows), box (128, rows of a tile); gated (k bytes, 8, gate and up,
                  ///< eights), box (128, 8, 2, a sixteenth of them)
  /// (k bytes, rows of A), where there is no index; boxes of 1, 2, ... times box_rows rows. Each
  /// box costs the thread that asks for it some 120 clocks, so a stage's rows are one.
  CUtensorMap a_maps[kMostRowBoxes];
  int group_rows = 0;   ///< of B
  int tile_tokens = 0;  ///< rows of D in a tile, at most
};

/// One compiled kernel.
struct GroupedSwapKernel {
  const char* id;  ///< sm90_<format>_grouped/<rows>x<tokens>[/gated]
  const void* function;
  const FormatInfo* format;
  bool gated;
  bool multiplied;   ///< producers multiply the scales
  int rows;          ///< of weights in a tile
  int tokens;        ///< rows of D in a tile, at most
  int width_step;    ///< from one width of a product to the next, above 64
  int box_rows;      ///< of A, of the smallest box
  int split_tokens;  ///< the same where a cluster splits K
  int resident;      ///< CTAs on a multiprocessor
  int stages;        ///< k-blocks in the ring
  int smem_bytes;
  int threads;
  int registers;  ///< of a thread, as compiled
};

/// CTAs of a cluster that share K, at most.
inline constexpr int kMostGroupedSplits = 4;

/// All kernels, the formats one after the other.
std::span<const GroupedSwapKernel> GroupedSwapKernels();

struct GroupedSwapLaunch {
  const void* function = nullptr;
  LaunchShape shape;
  GroupedSwapParams params;
  int boxes = 0;  ///< of params.a_maps that are there

  /// Other rows of A, laid out as those of the plan. False when the driver refuses.
  bool BindRows(const void* a);
  cudaError_t Start(cudaStream_t stream) const;
};

/// Null, or why no grouped kernel takes such a problem of `format`.
const char* WhyNotGrouped(const GroupedProblem& problem, const FormatInfo& format, bool gated);

/// Plans a launch of `sms` multiprocessors. `splits`: CTAs that share K, 1, 2 or 4. False when a
/// tensor map cannot be made.
bool PlanGroupedSwap(const GroupedSwapKernel& kernel, const GroupedProblem& problem, int splits,
                     int sms, GroupedSwapLaunch* launch);

}  // namespace culet::sm90
