// What the host knows of the skinny kernels that are fused with a product's neighbours.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "cuda/fused_product.h"
#include "culet/types.h"
#include "kernels/sm90/skinny.h"

namespace culet::sm90 {

/// The argument of a fused kernel. A is made from x and y, FP32, with gamma.
struct FusedSkinnyParams : SkinnyParams {
  const float* x = nullptr;  ///< (m, elements)
  const float* y = nullptr;  ///< the same, or null: A is the norm of x alone
  float* sum = nullptr;      ///< of x and y, the same; it lies apart from both
  const void* gamma = nullptr;
  DataType gamma_type = DataType::kNull;  ///< float32, float16 or bfloat16
  float epsilon = 0.0f;
  int elements = 0;    ///< of a row, a multiple of 8
  int norm_shift = 0;  ///< a row's sum of squares has 1 << norm_shift parts, a warp's each, ...
  int turn_shift = 0;  ///< ... whose lanes take 1 << turn_shift vectors of 8
  int norm_steps = 0;  ///< vectors that a lane of this CTA takes, of all rows
  int own_rows = 0;    ///< 1: what a warp multiplies is what it norms
  // Behind the rings, bytes from the start of the shared memory:
  int tile_at = 0;  ///< A: rows of `tile_stride` bytes
  int gamma_at = 0;
  int sums_at = 0;   ///< a float for each part of each row
  int stage_at = 0;  ///< a kilobyte for each vector of a warp, where there are more than ...
  int tile_stride = 0;
};

/// ... so many, which stay in registers.
inline constexpr int kNormKept = 2;

/// All of them.
std::span<const SkinnyKernel> FusedSkinnyKernels();

/// The one that multiplies as `kernel` does; null where there is none.
const SkinnyKernel* FusedSkinnyTwin(const SkinnyKernel& kernel, SkinnyFusion fusion);

/// As SkinnyLaunch; its other kernel is for launches that hold all of their weights, and a vector of
/// the norm in each lane.
using FusedSkinnyLaunch = ProductLaunch<FusedSkinnyParams>;

/// Bytes of shared memory beside the rings, and where they lie behind `rings` bytes (`params` may
/// be null).
int FusedSkinnyBeside(const SkinnyKernel& kernel, int m, int k, DataType gamma, int warps,
                      int rings, FusedSkinnyParams* params);

/// Plans a launch but for x, y and the sum; as PlanSkinny. False also where the norm
/// does not fit beside the rings.
bool PlanFusedSkinny(const SkinnyKernel& kernel, const ProductProblem& problem,
                     const ProductFusion& fusion, int splits, FusedSkinnyLaunch* launch);

}  // namespace culet::sm90
