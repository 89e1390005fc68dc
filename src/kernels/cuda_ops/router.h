// A router's product and the routes that it makes, with the norm before them, in one launch.
#pragma once

#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

inline constexpr int kRouterBlocks = 8;  ///< of its cluster, which its tokens are shared among
inline constexpr int kMostRouterRows = 32;
inline constexpr int kFewRoutes = 256;  ///< that one block orders

/// Few tokens: FusedNorm of float32 values, the product of its values with the router's weight,
/// and RouteFew (route.cuh). Sums of the product are FP32; its inputs keep all of their bits.
struct RouterArgs {
  bool normalises = false;  ///< else x is the product's input
  FusedNormArgs norm;       ///< `out` is given
  const void* x = nullptr;  ///< (rows, width)
  DataType x_type = DataType::kNull;
  const void* weight = nullptr;  ///< (experts, width) of bfloat16, aligned to 16 bytes
  const void* bias = nullptr;    ///< (experts), of the logits; null: none
  DataType bias_type = DataType::kNull;
  int width = 0;            ///< a multiple of 8
  RouteArgs route;          ///< `ids` and `logits` are not used
  float* logits = nullptr;  ///< (rows, experts) of scratch memory
};

inline constexpr std::size_t kMostRouterShared = std::size_t{96} << 10;

/// Bytes of shared memory of a block.
std::size_t RouterShared(std::int64_t rows, int width, int experts, DataType values);

/// Requires: kernels with clusters (CanOverlap); at most kMostRouterRows rows and kFewRoutes
/// routes; RouterShared within
/// kMostRouterShared.
cudaError_t Router(const RouterArgs& args, LaunchStream stream);

}  // namespace culet::cuda_ops
