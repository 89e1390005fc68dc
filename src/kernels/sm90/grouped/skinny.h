// What the host knows of the grouped kernels for few rows a group. Their warps are those of the
// skinny kernels: each loads weights straight into a ring of its own and multiplies them by up to 8
// rows of A.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>

#include "kernels/sm90/grouped/problem.h"
#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/skinny/skinny.h"

namespace culet::sm90 {

inline constexpr int kMostGroupedWarps = 8;  ///< that share K

/// The kernel's one argument.
struct GroupedSkinnyParams : GroupedParams {
  const std::uint8_t* b = nullptr;           ///< rows k_bytes apart
  std::int64_t group_rows = 0, up_rows = 0;  ///< of B
  int blocks_each = 0;  ///< k-blocks of a warp; the first `blocks_rest` have one more
  int blocks_rest = 0;
};

/// Two kernels, plain and gated, as a list of them says it.
struct GroupedSkinnyInstance {
  int rows;                              ///< of weights, a warp's: a multiple of 16
  int depth;                             ///< k-blocks a warp has in flight
  int plain_registers, gated_registers;  ///< a thread's, as compiled
};

/// One compiled kernel.
struct GroupedSkinnyKernel {
  GroupedSkinnyInstance instance;
  const void* function;
  const FormatInfo* format;
  bool gated;
  int warp_bytes;  ///< of shared memory, for the ring and sums of a warp

  /// The stable id: sm90_<format>_grouped_skinny/<rows of weights a warp>x8x<k-blocks in flight>,
  /// then /gated.
  std::string Id() const {
    return std::string("sm90_") + format->name + "_grouped_skinny/" + std::to_string(rows()) + "x" +
           std::to_string(kSkinnyTokens) + "x" + std::to_string(depth()) + (gated ? "/gated" : "");
  }
  constexpr int rows() const { return instance.rows; }
  constexpr int depth() const { return instance.depth; }
  constexpr int registers() const {
    return gated ? instance.gated_registers : instance.plain_registers;
  }
  /// Elements of K in a k-block.
  constexpr int block_k() const { return kBlockBytes / format->element_bytes; }
};

/// All kernels, the formats one after the other.
std::span<const GroupedSkinnyKernel> GroupedSkinnyKernels();

/// Loads the kernel on the current device and allows it the shared memory of its largest launch.
cudaError_t Load(const GroupedSkinnyKernel& kernel);

/// The most warps that can share K: each needs a k-block.
int GroupedSkinnyMaxSplits(const GroupedSkinnyKernel& kernel, int k);

/// CTAs of so many warps that a launch has on a multiprocessor: as many as it holds, up to 16
/// warps.
int GroupedSkinnyResident(const GroupedSkinnyKernel& kernel, int splits);

struct GroupedSkinnyLaunch {
  const void* function = nullptr;
  LaunchShape shape;
  GroupedSkinnyParams params;

  /// As GroupedSwapLaunch::BindRows.
  bool BindRows(const void* a) {
    params.a = static_cast<const std::uint8_t*>(a);
    return true;
  }
  cudaError_t Start(cudaStream_t stream) const;
};

/// Null, or why no such kernel takes such a problem of `format`.
const char* WhyNotGroupedSkinny(const GroupedProblem& problem, const FormatInfo& format,
                                bool gated);

/// Plans a launch of `sms` multiprocessors. Requires: WhyNotGroupedSkinny is null, and `splits`,
/// the warps that share K, at most GroupedSkinnyMaxSplits.
GroupedSkinnyLaunch PlanGroupedSkinny(const GroupedSkinnyKernel& kernel,
                                      const GroupedProblem& problem, int splits, int sms);

}  // namespace culet::sm90
