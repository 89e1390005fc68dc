#include "kernels/cuda_ops/gather_routes.h"

#include "kernels/cuda_ops/launch.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;  // a block
constexpr int kThreads = kWarp * kWarps;

// A warp a row.
__global__ void __launch_bounds__(kThreads) GatherRoutesKernel(const GatherRoutesArgs args) {
  WaitForPrevious();
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= args.rows) return;
  const std::int64_t from = args.routes[row] / args.active;
  const std::int64_t pieces = args.row_bytes / 16;
  const auto* const x = static_cast<const uint4*>(args.x) + from * pieces;
  auto* const out = static_cast<uint4*>(args.out) + row * pieces;
#pragma unroll 4
  for (std::int64_t i = lane; i < pieces; i += kWarp) out[i] = x[i];
  for (std::int64_t i = lane; i < args.scales; i += kWarp) {
    args.out_scales[row * args.scales + i] = args.x_scales[from * args.scales + i];
  }
}

}  // namespace

cudaError_t GatherRoutes(const GatherRoutesArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  return Launch(&GatherRoutesKernel, Blocks(CeilDiv(args.rows, kWarps)), kThreads, stream, args);
}

}  // namespace culet::cuda_ops
