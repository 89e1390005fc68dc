// What the host knows of the skinny block-scaled FP8 kernels for Hopper: up to 8 tokens, weights
// by cp.async into a ring of each warp's own. A warp multiplies 16 to 64 rows of the weights (mma's
// M) by the tokens (its N); warps of a CTA share rows and split K.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "kernels/sm90/block_scaled.h"

namespace culet::sm90 {

/// The kernel's one argument. Strides of scales are in elements, so either order is served.
struct Fp8SkinnyParams {
  const std::uint8_t* a = nullptr;
  const std::uint8_t* b = nullptr;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  void* d = nullptr;
  int lda = 0, ldb = 0;
  std::int64_t ldd = 0;
  int scale_a_row = 0;
  int scale_a_block = 0;
  int scale_b_column = 0;
  int scale_b_block = 0;
  int m = 0;
  int n = 0;
  int k = 0;
  int blocks_each = 0;  ///< k-blocks of 128 a warp takes; the first `blocks_rest` one more
  int blocks_rest = 0;
  float alpha = 1.0f;
  int early_weights = 0;  ///< 1: the kernel before writes neither the weights nor their scales
  int rehearse = 0;       ///< 1: there is a slot of nobody's behind the rings, see the kernel
};

inline constexpr int kFp8SkinnyTokens = 8;        ///< rows of A, at most
inline constexpr int kFp8SkinnyMaxThreads = 512;  ///< of a CTA

/// One compiled kernel.
struct Fp8SkinnyKernel {
  const char* id;  ///< rows of weights a warp x tokens x k-blocks in flight
  const void* function;
  int rows;          ///< of weights, a warp
  int depth;         ///< k-blocks a warp has in flight
  int registers;     ///< a thread
  int warp_bytes;    ///< of shared memory: a warp's ring
  int slot_bytes;    ///< a k-block's part of it
  int output_bytes;  ///< of an element of D: 2 is BF16, 4 is F32
  constexpr int SmemBytes(int warps, bool rehearse) const {
    return warps * warp_bytes + (rehearse ? slot_bytes : 0);
  }
};

/// All kernels of the family.
std::span<const Fp8SkinnyKernel> Fp8SkinnyKernels();

struct Fp8SkinnyLaunch {
  const Fp8SkinnyKernel* kernel = nullptr;
  Fp8SkinnyParams params;
  int ctas = 0;
  int splits = 1;      ///< warps along K ...
  int row_groups = 1;  ///< ... and along rows, of a CTA
  int smem_bytes = 0;
};

/// The most warps that can share K: each has a k-block.
int Fp8SkinnyMaxSplits(const Fp8SkinnyKernel& kernel, int k);

/// Groups of rows that a CTA takes when `splits` warps share each.
int Fp8SkinnyRowGroups(int splits);

/// Everything but the stream, made once. False when the shape or `splits` does not fit. Operands
/// as BlockScaledProblem says, and k a multiple of 16.
bool PlanFp8Skinny(const Fp8SkinnyKernel& kernel, const BlockScaledProblem& problem, int splits,
                   Fp8SkinnyLaunch* launch);

/// Puts other operands into a plan: A, its scales and D of the plan's shapes and alignments.
void RebindFp8Skinny(const void* a, const float* scale_a, void* d, float alpha,
                     Fp8SkinnyLaunch* launch);

/// Whether a CTA of so many warps rehearses: not under programmatic dependent launch, where time
/// passes before the activations and where memory of nobody's keeps the next kernel out.
bool Fp8SkinnyRehearses(const Fp8SkinnyKernel& kernel, int warps, bool pdl);

/// CTAs of so many warps that a multiprocessor holds.
int Fp8SkinnyResidentCtas(const Fp8SkinnyKernel& kernel, int warps, bool pdl);

/// Loads the kernel on the current device and raises its shared-memory limit; not during a capture.
cudaError_t LoadFp8Skinny(const Fp8SkinnyKernel& kernel);

/// A programmatic dependent launch where the plan says early_weights.
cudaError_t LaunchFp8Skinny(const Fp8SkinnyLaunch& launch, cudaStream_t stream);

}  // namespace culet::sm90
