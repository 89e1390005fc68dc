// HeadMulMat: products of heads, each with a weight of its own.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 8;       // that share a sum
constexpr int kSums = 32;       // of a head, a block
constexpr int kElements = 512;  // of a row of X at a time

// A block takes kRows rows, and some sums of a head; of these each kLanes lanes take one at a time.
template <class X, class W, class Y, int kRows, int kWide>
__global__ void __launch_bounds__(kThreads, 4) HeadMulMatKernel(const HeadMulMatArgs args) {
  WaitForPrevious();
  __shared__ __align__(16) float slices[kRows][kElements];
  constexpr int kGroups = kThreads / kLanes;
  constexpr int kSteps = kSums / kGroups;
  const std::int64_t pieces = (args.sums + kSums - 1) / kSums;
  const std::int64_t head = blockIdx.x / pieces;
  const std::int64_t first = (blockIdx.x - head * pieces) * kSums;
  const std::int64_t begin = std::int64_t{blockIdx.y} * kRows;
  const int rows = static_cast<int>(args.rows - begin < kRows ? args.rows - begin : kRows);
  const std::int64_t size = args.sums + args.in - args.k;  // of a head of the result
  const X* const x = static_cast<const X*>(args.x) + (begin * args.heads + head) * args.in;
  Y* const out = static_cast<Y*>(args.out) + (begin * args.heads + head) * size;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;

  float sums[kSteps][kRows] = {};
  for (std::int64_t base = 0; base < args.k; base += kElements) {
    const int count = static_cast<int>(args.k - base < kElements ? args.k - base : kElements);
    __syncthreads();  // the slices before are read
    for (int i = static_cast<int>(threadIdx.x); i < kRows * count; i += kThreads) {
      const int row = i / count, at = i - row * count;
      slices[row][at] = row < rows ? ToFloat(x[row * args.heads * args.in + base + at]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const std::int64_t sum = first + step * kGroups + group;
      if (sum >= args.sums) continue;
      const W* const weight =
          static_cast<const W*>(args.weight) + (head * args.sums + sum) * args.k + base;
      for (int i = lane * kWide; i < count; i += kLanes * kWide) {
        float w[kWide];
        Load(weight + i, w);
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
#pragma unroll
          for (int j = 0; j < kWide; ++j) {
            sums[step][row] = fmaf(slices[row][i + j], w[j], sums[step][row]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t sum = first + step * kGroups + group;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const float total = SumLanes<kLanes>(sums[step][row]);
      if (lane == 0 && sum < args.sums && row < rows) {
        Round(total, out + row * args.heads * size + sum);
      }
    }
  }
  if (first > 0) return;
  const std::int64_t rest = args.in - args.k;
  for (std::int64_t i = threadIdx.x; i < rows * rest; i += kThreads) {
    const std::int64_t row = i / rest, at = i - row * rest;
    Round(ToFloat(x[row * args.heads * args.in + args.k + at]),
          out + row * args.heads * size + args.sums + at);
  }
}

template <class X, class W, class Y, int kRows>
cudaError_t LaunchRows(const HeadMulMatArgs& args, LaunchStream stream) {
  const dim3 grid = Blocks(args.heads * CeilDiv(args.sums, kSums), CeilDiv(args.rows, kRows));
  return IsWide(args.k, static_cast<const char*>(args.weight))
             ? Launch(&HeadMulMatKernel<X, W, Y, kRows, 8>, grid, kThreads, stream, args)
             : Launch(&HeadMulMatKernel<X, W, Y, kRows, 1>, grid, kThreads, stream, args);
}

}  // namespace

cudaError_t HeadMulMat(const HeadMulMatArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  constexpr int kMostRows = 8;
  return WithValue(args.x_type, [&]<class X>(X) {
    return WithStored(args.weight_type, [&]<class W>(W) {
      return WithValue(args.out_type, [&]<class Y>(Y) {
        return args.rows == 1 ? LaunchRows<X, W, Y, 1>(args, stream)
                              : LaunchRows<X, W, Y, kMostRows>(args, stream);
      });
    });
  });
}

}  // namespace culet::cuda_ops
