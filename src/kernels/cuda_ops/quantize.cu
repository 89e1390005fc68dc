// QuantizeRows: sixteen lanes a group of 128.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/quantize.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksToReadNext = 64;  // behind the others, each with a share of it

// Prefetches a block's share. These blocks fit beside the preceding kernel, which the product's
// blocks, with all of shared memory, mostly do not. They do not wait, because the product needs
// their places.
__device__ __forceinline__ void Bring(const ReadNext& next, int block) {
  constexpr std::int64_t kPiece = 4096;
  for (std::int64_t at = (std::int64_t{block} * kThreads + threadIdx.x) * kPiece; at < next.bytes;
       at += kBlocksToReadNext * kThreads * kPiece) {
    const std::int64_t left = next.bytes - at;
    PrefetchBytes(static_cast<const char*>(next.data) + at,
                  static_cast<int>(left < kPiece ? left : kPiece));
  }
  NeedNotWait();
}

// `blocks`: with rows of their own.
template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    QuantizeRowsKernel(const T* x, std::int64_t rows, std::int64_t cols, std::uint8_t* values,
                       float* scales, int blocks, const ReadNext next) {
  if (static_cast<int>(blockIdx.x) >= blocks) {
    Bring(next, static_cast<int>(blockIdx.x) - blocks);
    return;
  }
  WaitForPrevious();
  const std::int64_t groups = (cols + kQuantGroup - 1) / kQuantGroup;  // of a row
  const std::int64_t index =
      std::int64_t{blockIdx.x} * (kThreads / kQuantLanes) + threadIdx.x / kQuantLanes;
  const std::int64_t row = index / groups;
  const int lane = static_cast<int>(threadIdx.x) % kQuantLanes;
  const std::int64_t col = (index - row * groups) * kQuantGroup + lane * kQuantEach;
  const std::int64_t left = row < rows ? cols - col : 0;  // elements from this lane's first on
  float v[kQuantEach] = {};
  if (kWide && left > 0) {
    Load(x + row * cols + col, v);
  } else if (!kWide) {
#pragma unroll
    for (int i = 0; i < kQuantEach; ++i) {
      if (i < left) v[i] = ToFloat(x[row * cols + col + i]);
    }
  }
  unsigned packed[2];
  const float scale = QuantizeGroup(v, packed);
  if (left <= 0) return;
  std::uint8_t* const to = values + row * cols + col;
  if (kWide) {
    *reinterpret_cast<uint2*>(to) = make_uint2(packed[0], packed[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kQuantEach; ++i) {
      if (i < left) to[i] = static_cast<std::uint8_t>(packed[i / 4] >> (8 * (i % 4)));
    }
  }
  if (lane == 0) scales[index] = scale;
}

}  // namespace

cudaError_t QuantizeRows(const void* x, DataType type, std::int64_t rows, std::int64_t cols,
                         std::uint8_t* values, float* scales, LaunchStream stream,
                         const ReadNext& next) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return WithValue(type, [&]<class T>(T) {
    const auto* from = static_cast<const T*>(x);
    const auto kernel =
        IsWide(cols, from, values) ? &QuantizeRowsKernel<T, true> : &QuantizeRowsKernel<T, false>;
    const std::int64_t groups = rows * CeilDiv(cols, kQuantGroup);
    const std::int64_t blocks = CeilDiv(groups, kThreads / kQuantLanes);
    return Launch(kernel, Blocks(blocks + (next.bytes > 0 ? kBlocksToReadNext : 0)), kThreads,
                  stream, from, rows, cols, values, scales, static_cast<int>(blocks), next);
  });
}

}  // namespace culet::cuda_ops
