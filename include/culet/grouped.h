// Grouped products: rows of A by groups, each with a matrix of its own, as a mixture of experts
// routes them.
#pragma once

#include <cstdint>

#include "culet/desc.h"
#include "culet/gemm.h"
#include "culet/problem.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// Row i of D (rows, n) belongs to the group g with starts[g] <= i < starts[g] + counts[g]. It is
/// row i of A, or row index[i], times the transpose of group g's matrix, plus its bias. Rows of no
/// group are not touched. Where groups lie is read on the device when the product runs, so that one
/// CUDA graph serves every routing: starts, counts and the index are memory of the engine's device.
/// Ranges are cut off at 0 and at `rows`, empty ones are left out; they must not overlap.
struct GroupedArgs {
  int groups = 0;  ///< 1 or more; 512 at most on a GPU
  int rows = 0;    ///< of D, at most; 0: there is nothing to do
  int a_rows = 0;  ///< of A; without an index as many as D's or more
  int n = 0;       ///< columns of D
  int k = 0;
  DataType type = DataType::kBfloat16;    ///< of A and B
  DataType d_type = DataType::kBfloat16;  ///< BF16, F16 or FP32
  const void* A = nullptr;
  std::int64_t lda = 0;  ///< elements; 0: k
  /// Of E4M3 alone: a scale for each row of A and 128 values of it, (row, block) at
  /// row * u_row + block * u_block. Both strides 0: row-major, ceil(k / 128) a row.
  const float* U = nullptr;
  std::int64_t u_row = 0, u_block = 0;
  const void* B = nullptr;   ///< (groups, n, k), contiguous; gated (groups, 2 n, k)
  const float* V = nullptr;  ///< of E4M3: (groups, ceil(rows of a group's B / 128), ceil(k / 128))
  const std::int32_t* starts = nullptr;  ///< (groups), or (groups + 1) offsets without counts
  const std::int32_t* counts = nullptr;  ///< (groups); null: a group ends where the next one starts
  const std::int32_t* index = nullptr;   ///< (rows); outside [0, a_rows): a row of zeros
  const void* bias = nullptr;            ///< (groups, rows of a group's B), contiguous, or null
  DataType bias_type = DataType::kFloat32;
  /// kNone, or kGatedSilu: silu(gate) * up, of which B has the rows of gate, then those of up.
  /// n % 8 == 0 then, with E4M3 n % 128 == 0.
  Epilogue epilogue = Epilogue::kNone;
  void* D = nullptr;
  std::int64_t ldd = 0;  ///< elements; 0: n
  /// What is expected of the routing, for the choice of a kernel and for nothing else: each of so
  /// many tokens goes to `active` of `experts` experts, of which the groups are some or all. 0: D's
  /// rows are spread over the groups.
  int expected_tokens = 0, expected_active = 0, expected_experts = 0;
  bool pdl = false;  ///< promises that the kernel before writes neither B nor V
  int sm_budget =
      0;  ///< at most so many SMs (CPU: threads, where a kernel can be held to them); 0 is all
};

/// The key by which a kernel is chosen (grouped_class.h), the same for every routing. Null pointers
/// count as aligned. Errors: INVALID_ARGUMENT for a size, type or stride that is none;
/// OUT_OF_RANGE.
Result<GemmDesc> DescribeGrouped(const GroupedArgs& args, int arch);

/// Computes a grouped product: on the CPU group after group with the engine's choice of kernels,
/// complete on return; on a Hopper GPU in one launch of what Gemm::Choose says of DescribeGrouped,
/// asynchronous on `stream`, which may be captured. Blocks of E4M3 are (1, 128) of A and (128, 128)
/// of B. On the CPU D's bits do not depend on how many rows other groups have. Errors:
/// INVALID_ARGUMENT for a null pointer, a size, type or stride that is none, overlap with D, or
/// another device's stream; OUT_OF_RANGE; UNSUPPORTED where no kernel takes the problem, on a GPU
/// FP32 operands, rows that do not lie on 16 bytes, and other GPUs than Hopper.
Status GroupedGemm(Gemm& gemm, const GroupedArgs& args, cudaStream_t stream = nullptr);

/// The same with a launch of one's own choice, of Gemm::Candidates. Errors: INVALID_ARGUMENT for a
/// kernel of no grouped products; UNSUPPORTED with its reason.
Status GroupedGemm(Gemm& gemm, const GroupedArgs& args, const LaunchSpec& spec,
                   cudaStream_t stream = nullptr);

}  // namespace culet
