// WriteCacheRows: rows of keys or values as E4M3.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;

template <class From, int kWide>
__global__ void __launch_bounds__(kThreads) WriteCacheRowsKernel(const CacheRowsArgs args) {
  WaitForPrevious();
  const std::int64_t vectors = args.cols / kWide;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= args.rows * vectors) return;
  const std::int64_t row = index / vectors, col = (index - row * vectors) * kWide;
  const std::int64_t to = args.slots[row];
  if (to < 0 || to >= args.cache_rows) return;
  float values[kWide];
  Load(static_cast<const From*>(args.source) + row * args.cols + col, values);
  StoreCached(values, reinterpret_cast<__nv_fp8_e4m3*>(args.cache) + to * args.cols + col,
              args.scales[col / args.head_dim]);
}

template <class From, int kWide>
cudaError_t LaunchWide(const CacheRowsArgs& args, LaunchStream stream) {
  const std::int64_t blocks = CeilDiv(args.rows * (args.cols / kWide), kThreads);
  return Launch(&WriteCacheRowsKernel<From, kWide>, Blocks(blocks), kThreads, stream, args);
}

}  // namespace

cudaError_t WriteCacheRows(const CacheRowsArgs& args, LaunchStream stream) {
  if (args.rows == 0 || args.cols == 0) return cudaSuccess;
  return WithValue(args.source_type, [&]<class From>(From) {
    return IsWide(args.head_dim, static_cast<const std::byte*>(args.source), args.cache)
               ? LaunchWide<From, 8>(args, stream)
               : LaunchWide<From, 1>(args, stream);
  });
}

}  // namespace culet::cuda_ops
