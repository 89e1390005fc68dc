// Rows in the order of their routes, for products that take them as they lie (gather_routes.cu).
#pragma once

#include <cstdint>

#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Row i of `out` is row routes[i] / active of x, and so with their scales if there are any.
struct GatherRoutesArgs {
  const void* x = nullptr;          ///< rows of `row_bytes`, a multiple of 16; aligned to 16
  const float* x_scales = nullptr;  ///< rows of `scales`; null: none
  const std::int32_t* routes = nullptr;
  int active = 1;
  void* out = nullptr;
  float* out_scales = nullptr;
  std::int64_t rows = 0, row_bytes = 0, scales = 0;
};
cudaError_t GatherRoutes(const GatherRoutesArgs& args, LaunchStream stream);

}  // namespace culet::cuda_ops
