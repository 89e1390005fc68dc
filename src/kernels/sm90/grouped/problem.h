// Grouped products for Hopper: rows of A by groups, each with a matrix of its own, as a mixture of
// experts routes them.
#pragma once

#include <cstdint>

#include "culet/types.h"
#include "kernels/sm90/product/epilogue.h"
#include "kernels/sm90/product/product.h"
#include "kernels/sm90/product/product_args.h"

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

/// What the arguments of all grouped kernels have. Pitches, `k_bytes` and `bias_group` are in
/// bytes.
struct GroupedParams {
  const std::uint8_t* a = nullptr;
  std::int64_t a_pitch = 0;
  int a_rows = 0, k_bytes = 0, k_blocks = 0;  ///< k-blocks of 128 bytes
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  std::int64_t scale_b_group = 0, scale_b_up = 0;
  int scale_a_row = 0, scale_a_block = 0;
  const int* starts = nullptr;
  const int* counts = nullptr;
  const int* index = nullptr;
  int per_row = 1;
  int groups = 0, rows = 0, n = 0;
  int tiles_n = 0;  ///< of a group
  const void* const* bias = nullptr;
  const char* biases = nullptr;
  std::int64_t bias_group = 0;
  const float* factors = nullptr;
  const int* factor_index = nullptr;
  void* d = nullptr;
  std::int64_t ldd = 0;
  float limit = 0, slope = 1;
  int early_weights = 0;
  OutputType bias_type = OutputType::kF32, d_type = OutputType::kBf16;
  GroupedGate gate = GroupedGate::kSilu;

  /// `element`: bytes of one of A and B. `tile`: columns of D in a tile.
  void Put(const GroupedProblem& problem, int element, int tile) {
    a = static_cast<const std::uint8_t*>(problem.a);
    a_pitch = problem.lda * element;
    a_rows = problem.a_rows;
    k_bytes = problem.k * element;
    k_blocks = CeilDiv(k_bytes, kBlockBytes);
    scale_a = problem.scale_a;
    scale_b = problem.scale_b;
    scale_b_group = problem.scale_b_group;
    scale_b_up = problem.scale_b_up;
    scale_a_row = problem.scale_a_row;
    scale_a_block = problem.scale_a_block;
    starts = problem.starts;
    counts = problem.counts;
    index = problem.index;
    per_row = problem.per_row;
    groups = problem.groups;
    rows = problem.rows;
    n = problem.n;
    tiles_n = CeilDiv(problem.n, tile);
    bias = problem.bias;
    biases = static_cast<const char*>(problem.biases);
    bias_group = problem.bias_group * static_cast<std::int64_t>(SizeOf(problem.bias_type));
    factors = problem.factors;
    factor_index = problem.factor_index;
    d = problem.d;
    ldd = problem.ldd;
    limit = problem.limit;
    slope = problem.slope;
    early_weights = problem.pdl && problem.early_weights ? 1 : 0;
    bias_type = ToOutputType(problem.bias_type);
    d_type = ToOutputType(problem.d_type);
    gate = problem.gate;
  }

  /// Tiles of `tokens` rows at most that there may be: each group can end within one.
  std::int64_t MostTiles(int tokens) const {
    const std::int64_t of_rows = std::int64_t{rows} / tokens + groups;
    return (of_rows < rows ? of_rows : rows) * tiles_n;
  }
};

}  // namespace culet::sm90
