// What the host knows of the grouped kernels for Hopper: rows of A by groups, each with a matrix of
// its own, as a mixture of experts routes them. D^T = B A^T, so a group of few rows costs few.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "kernels/sm90/product/epilogue.h"
#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/policy.h"

namespace culet::sm90 {

inline constexpr int kMostExperts = 512;

/// What a pair of sums becomes where gate and up are one product.
enum class GroupedGate : std::int8_t {
  kSilu,    ///< silu(gate) * up
  kClamped  ///< with g = min(gate, limit), u = up between -limit and limit: g / (1 + exp(-slope g))
            ///< * (u + 1)
};

/// D (rows, n) row-major. Row i of D belongs to the group g with starts[g] <= i < starts[g] +
/// counts[g] and is row i of A, or row index[i] / per_row, times group g's matrix. Rows of no group
/// are not touched. Everything that says where groups lie is read on the device.
struct GroupedProblem {
  int groups = 0;
  int rows = 0;    ///< of D, at most
  int a_rows = 0;  ///< of A; a row of `index` outside them counts as zeros
  int n = 0;       ///< columns of D
  int k = 0;
  const int* starts = nullptr;  ///< (groups), or (groups + 1) without counts
  const int* counts = nullptr;  ///< null: a group ends where the next one starts
  const int* index = nullptr;
  int per_row = 1;
  const void* a = nullptr;
  std::int64_t lda = 0;            ///< elements
  const float* scale_a = nullptr;  ///< of Sums::kBlockScaled: a row of A and a block of 128 of K
  int scale_a_row = 0, scale_a_block = 0;
  const void* b = nullptr;            ///< (n, k) of group 0, rows k apart
  std::int64_t b_group_rows = 0;      ///< rows from a group's matrix to the next one's
  std::int64_t up_rows = 0;           ///< gated: rows from gate's matrix to up's
  const float* scale_b = nullptr;     ///< (ceil(n / 128), ceil(k / 128)) of group 0
  std::int64_t scale_b_group = 0;     ///< floats from a group's scales to the next one's
  std::int64_t scale_b_up = 0;        ///< gated: floats from gate's scales to up's
  const void* const* bias = nullptr;  ///< on the device, of each group n, gated gate's then up's
  const void* biases = nullptr;  ///< instead: those of group 0, gated gate's and right behind up's,
  std::int64_t bias_group = 0;   ///< and the elements to the next group's
  DataType bias_type = DataType::kFloat32;
  const float* factors = nullptr;  ///< factors[factor_index[i]] multiplies row i's sums
  const int* factor_index = nullptr;
  void* d = nullptr;
  std::int64_t ldd = 0;  ///< elements
  DataType d_type = DataType::kBfloat16;
  GroupedGate gate = GroupedGate::kSilu;
  float limit = 0, slope = 1;
  bool pdl = false;
  /// The kernel before does not write what says where groups lie, nor the index, and none that
  /// writes it is in flight: weights are loaded while it ends.
  bool early_weights = false;
};

inline constexpr int kMostRowBoxes = 7;

/// The kernel's one argument.
struct GroupedSwapParams {
  CUtensorMap b;  ///< (k bytes, rows), box (128, 128); gated (k bytes, 8, gate and up, eights), box
                  ///< (128, 8, 2, 8)
  /// (k bytes, rows of A), where there is no index; boxes of 1, 2, ... times box_rows rows. Each
  /// box costs the thread that asks for it some 120 clocks, so a stage's rows are one.
  CUtensorMap a_maps[kMostRowBoxes];
  const char* a = nullptr;
  std::int64_t a_pitch = 0;  ///< bytes
  int a_rows = 0, k_bytes = 0, k_blocks = 0;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  std::int64_t scale_b_group = 0, scale_b_up = 0;
  int scale_a_row = 0, scale_a_block = 0;
  const int* starts = nullptr;
  const int* counts = nullptr;
  const int* index = nullptr;
  int per_row = 1;
  int groups = 0, rows = 0, n = 0;
  int group_rows = 0;   ///< of B
  int tiles_n = 0;      ///< of a group
  int tile_tokens = 0;  ///< rows of D in a tile, at most
  const void* const* bias = nullptr;
  const char* biases = nullptr;
  std::int64_t bias_group = 0;  ///< bytes
  const float* factors = nullptr;
  const int* factor_index = nullptr;
  void* d = nullptr;
  std::int64_t ldd = 0;
  float limit = 0, slope = 1;
  int early_weights = 0;
  OutputType bias_type = OutputType::kF32, d_type = OutputType::kBf16;
  GroupedGate gate = GroupedGate::kSilu;
};

/// One compiled kernel.
struct GroupedSwapKernel {
  const char* id;  ///< sm90_<format>_grouped/128x<tokens>[/gated]
  const void* function;
  const FormatInfo* format;
  bool gated;
  int tokens;        ///< rows of D in a tile, at most
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
