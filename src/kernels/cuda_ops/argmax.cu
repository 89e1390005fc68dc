// ArgMax in two stages: blocks over slices of the rows, then a block a row over its slices.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/order.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr std::int64_t kSlice = kThreads * 8 * 2;  // elements; two vectors a thread

// The result is in thread 0.
__device__ __forceinline__ std::uint64_t LargestOfBlock(std::uint64_t key) {
  __shared__ std::uint64_t warps[kThreads / kWarp];
  key = LargestOfWarp(key);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = key;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int warp = 1; warp < kThreads / kWarp; ++warp) {
      key = warps[warp] > key ? warps[warp] : key;
    }
  }
  return key;
}

// `keys`: (rows, slices), null where a row is one slice and `out` gets the index.
template <class T, int kWide>
__global__ void __launch_bounds__(kThreads) ArgMaxSlices(const T* x, std::int64_t cols, int slices,
                                                         std::uint64_t* keys, std::int32_t* out) {
  WaitForPrevious();
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(slices);
  const std::int64_t begin = blockIdx.x % static_cast<unsigned>(slices) * kSlice;
  const std::int64_t end = begin + kSlice < cols ? begin + kSlice : cols;
  std::uint64_t best = 0;
  for (std::int64_t at = begin + threadIdx.x * kWide; at < end; at += kThreads * kWide) {
    float values[kWide];
    Load(x + row * cols + at, values);
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const std::uint64_t key = KeyOf(values[i], static_cast<std::uint32_t>(at + i));
      best = key > best ? key : best;
    }
  }
  best = LargestOfBlock(best);
  if (threadIdx.x != 0) return;
  if (keys == nullptr) {
    out[row] = IndexOf(best);
  } else {
    keys[blockIdx.x] = best;
  }
}

__global__ void __launch_bounds__(kThreads)
    ArgMaxRows(const std::uint64_t* keys, int slices, std::int32_t* out) {
  WaitForPrevious();
  std::uint64_t best = 0;
  for (int slice = static_cast<int>(threadIdx.x); slice < slices; slice += kThreads) {
    const std::uint64_t key = keys[std::int64_t{blockIdx.x} * slices + slice];
    best = key > best ? key : best;
  }
  best = LargestOfBlock(best);
  if (threadIdx.x == 0) out[blockIdx.x] = IndexOf(best);
}

}  // namespace

std::size_t ArgMaxWorkspace(std::int64_t rows, std::int64_t cols) {
  const std::int64_t slices = CeilDiv(cols, kSlice);
  return slices > 1 ? static_cast<std::size_t>(rows * slices) * sizeof(std::uint64_t) : 0;
}

cudaError_t ArgMax(const void* x, DataType type, std::int32_t* out, std::int64_t rows,
                   std::int64_t cols, void* workspace, LaunchStream stream) {
  if (rows == 0) return cudaSuccess;
  const int slices = static_cast<int>(CeilDiv(cols, kSlice));
  auto* const keys = slices > 1 ? static_cast<std::uint64_t*>(workspace) : nullptr;
  const cudaError_t error = WithValue(type, [&]<class T>(T) {
    const auto* values = static_cast<const T*>(x);
    const auto kernel = IsWide(cols, values) ? &ArgMaxSlices<T, 8> : &ArgMaxSlices<T, 1>;
    return Launch(kernel, Blocks(rows * slices), kThreads, stream, values, cols, slices, keys, out);
  });
  if (error != cudaSuccess || slices == 1) return error;
  return Launch(&ArgMaxRows, Blocks(rows), kThreads, stream, keys, slices, out);
}

}  // namespace culet::cuda_ops
