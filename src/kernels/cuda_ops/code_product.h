// Products of 16-bit activations by weights that are codes of 4 or 8 bits, on tensor cores of any
// generation from Ampere on: what the host knows of the kernels.
//
// A weight stays as a graph or a problem describes it: rows of codes along K. No second order is
// needed. mma.sync sums over K in any order, so a lane takes neighbouring codes of a row, as they
// lie, and the same elements of a token. code_product.cuh is for any number of tokens and all types,
// code_direct.cuh for few and code_tile.cuh for more, code_stream.cuh for few and short groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "culet/types.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// D (m, n) = alpha * X (m, k) W^T + beta * C + bias, where element (j, l) of W is
/// (code - zero) * scale, with the scale of row j / group_rows and group l / group. The sum of a
/// group is scaled in FP32, so that codes are exact. Strides are in elements, those of codes in
/// bytes.
struct CodeProductParams {
  const void* x = nullptr;  ///< rows aligned to 16 bytes
  std::int64_t x_stride = 0;
  const void* codes = nullptr;  ///< rows aligned to 16 bytes
  std::int64_t code_stride = 0;
  const void* scales = nullptr;  ///< float32, float16, bfloat16 or UE8M0
  const void* zeros = nullptr;  ///< of uint4 and int8, or null; float32, float16, bfloat16 or uint4
  DataType scale_type = DataType::kNull, zero_type = DataType::kNull;
  std::int64_t scale_row_stride = 0, scale_k_stride = 0;
  int group = 0;       ///< elements of a row that share a scale
  int group_rows = 1;  ///< rows that share it; more than one of E4M3 alone
  void* d = nullptr;
  const void* c = nullptr;     ///< null: beta is 0
  const void* bias = nullptr;  ///< or null
  DataType d_type = DataType::kNull, c_type = DataType::kNull, bias_type = DataType::kNull;
  std::int64_t d_row = 0, d_col = 0, c_row = 0, c_col = 0, bias_row = 0, bias_col = 0;
  float alpha = 1.0f, beta = 0.0f;
  /// Those that stream alone: D has n / 2 columns, silu(gate) * up of two values each. Gate rows
  /// are the first half of the weight's, or else eights of gate and up alternate.
  bool gated = false, halves = false;
  int m = 0, n = 0, k = 0;
  int splits = 1;
  float* partials = nullptr;  ///< CodeProductWorkspace().partials, where K is split
  int* arrived = nullptr;     ///< and its counters, which are 0 between launches
  bool early = false;         ///< codes may be read before the preceding kernel has ended
  bool chain = false;         ///< the next kernel may begin before this one waits
};

inline constexpr int kCodeProductWarps = 8;
inline constexpr int kMostCodeSplits = 16;
inline constexpr int kAnyTokens = 1 << 30;

/// One compiled kernel.
struct CodeProductKernel {
  std::string id;  ///< codes_activations/rows x tokens x stages
  void (*function)(CodeProductParams);
  DataType codes, x;
  int group_step;  ///< groups are a multiple of it, or of a whole row
  int rows;        ///< of the weight, of a CTA
  int tokens;      ///< at most, of a CTA
  int most;        ///< tokens of a product that is offered to it
  int block_k;     ///< elements of a row that a warp takes at a time
  int stages;
  int ctas;                      ///< that share a multiprocessor
  bool streams;                  ///< made for few tokens: code_stream.cuh, code_direct.cuh
  int registers;                 ///< a thread, in the code for compute capability 9.0
  int stage_bytes, token_bytes;  ///< of a warp's stage: codes, and what a token adds
  int scale_bytes, sum_bytes;
  int rings = kCodeProductWarps;
  bool direct = false;  ///< codes go straight to registers: code_direct.cuh, code_tile.cuh
  bool tiles = false;   ///< of tokens: code_tile.cuh

  /// Dynamic shared memory for a product of `m` tokens.
  int SmemBytes(int m) const noexcept;
  /// The most, for any number of tokens.
  int MostSmemBytes() const noexcept;
};

/// Those of all coded types.
std::span<const CodeProductKernel* const> CodeProductKernels();

struct CodeProductMemory {
  std::size_t counters = 0, partials = 0;  ///< bytes
};
CodeProductMemory CodeProductWorkspace(const CodeProductKernel& kernel, int m, int n, int splits);

/// The most parts of K for a product of this size.
int MaxCodeSplits(const CodeProductKernel& kernel, int k);

/// Loads the kernel on the current device and allows its shared memory.
cudaError_t LoadCodeProduct(const CodeProductKernel& kernel);

/// Requires: what CodeProductParams says; k a multiple of 32 elements of 4 bits or 16 of 8; groups
/// of group_step; at most `most` tokens.
cudaError_t CodeProduct(const CodeProductKernel& kernel, const CodeProductParams& params,
                        LaunchStream stream);

}  // namespace culet::cuda_ops
