// The host side of the skinny kernels that are fused with the operations before and behind a product.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "cuda/fused_product.h"
#include "culet/types.h"
#include "kernels/sm90/skinny/skinny.h"

namespace culet::sm90 {

/// The argument of a fused kernel, which makes A from x and y, of FP32, and gamma.
struct FusedSkinnyParams : SkinnyParams {
  const float* x = nullptr;  ///< (m, elements)
  const float* y = nullptr;  ///< the same, or null: A is the norm of x alone
  float* sum = nullptr;      ///< of x and y, of the same shape; it overlaps neither
  const void* gamma = nullptr;
  DataType gamma_type = DataType::kNull;  ///< float32, float16 or bfloat16
  float epsilon = 0.0f;
  int elements = 0;    ///< of a row, a multiple of 8
  int norm_shift = 0;  ///< a row's sum of squares has 1 << norm_shift parts, one a warp
  int turn_shift = 0;  ///< each lane of a part adds 1 << turn_shift vectors of 8
  int norm_steps = 0;  ///< vectors of a lane of this CTA, over all rows
  int own_rows = 0;    ///< 1: a warp multiplies the part of A that it normalised
  // Behind the rings, bytes from the start of the shared memory:
  int tile_at = 0;  ///< A: rows of `tile_stride` bytes
  int gamma_at = 0;
  int sums_at = 0;   ///< a float for each part of each row
  int stage_at = 0;  ///< a kilobyte for each vector of a warp, where there are more than ...
  int tile_stride = 0;
};

/// ... so many, which stay in registers.
inline constexpr int kNormKept = 2;

/// All fused kernels.
std::span<const SkinnyKernel> FusedSkinnyKernels();

/// The fused kernel whose product is that of `kernel`, or null.
const SkinnyKernel* FusedSkinnyTwin(const SkinnyKernel& kernel, SkinnyFusion fusion);

/// Like SkinnyLaunch. Its kernel `held` is for launches whose weights all fit at once, with one vector
/// of the norm a lane.
using FusedSkinnyLaunch = ProductLaunch<FusedSkinnyParams>;

/// Bytes of shared memory beside the rings. Sets their offsets in `params`, if not null, behind `rings`
/// bytes.
int FusedSkinnyBeside(const SkinnyKernel& kernel, int m, int k, DataType gamma, int warps,
                      int rings, FusedSkinnyParams* params);

/// PlanSkinny for a fused launch. x, y and the sum are set later. False also if the norm does not fit
/// beside the rings.
bool PlanFusedSkinny(const SkinnyKernel& kernel, const ProductProblem& problem,
                     const ProductFusion& fusion, int splits, FusedSkinnyLaunch* launch);

}  // namespace culet::sm90
