// RmsNorm of rows, a block each, and of heads, some lanes each.
#include <algorithm>

#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/rms_norm.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kMostThreads = 512;
constexpr int kHeadThreads = 128;  // of a block that normalises several groups
constexpr int kKept = 2;           // vectors of a thread that stay in registers between the passes

template <class Out, int kWide>
__device__ __forceinline__ void Scale(const RmsNormArgs& args, float (&x)[kWide], float scale,
                                      int at, Out* out) {
  float gamma[kWide];
  LoadStored(args.gamma, args.gamma_type, at, gamma);
#pragma unroll
  for (int i = 0; i < kWide; ++i) x[i] = x[i] * scale * gamma[i];
  Store(x, out + at);
}

// `kLanes` threads a group: fewer than a warp's, or 0 for the whole block.
template <class In, class Out, int kWide, int kLanes>
__global__ void __launch_bounds__(kLanes != 0 ? kHeadThreads : kMostThreads)
    RmsNormKernel(const RmsNormArgs args) {
  WaitForPrevious();
  const int threads = kLanes != 0 ? kLanes : static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x) % threads;
  std::int64_t group = blockIdx.x;
  if constexpr (kLanes != 0) group = group * (kHeadThreads / kLanes) + threadIdx.x / kLanes;
  // Lanes without a group of their own take part in the sums all the same.
  const int width = group < args.groups ? args.width : 0;
  const In* const x = static_cast<const In*>(args.x) + group * args.stride;
  Out* const out = static_cast<Out*>(args.out) + group * args.stride;
  const int step = threads * kWide, first = thread * kWide;
  float kept[kKept][kWide];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (const int at = first + i * step; at < width) {
      Load(x + at, kept[i]);
      sum += SumOfSquares(kept[i]);
    }
  }
  for (int at = first + kKept * step; at < width; at += step) {
    float more[kWide];
    Load(x + at, more);
    sum += SumOfSquares(more);
  }
  if constexpr (kLanes != 0) {
    sum = SumLanes<kLanes>(sum);
  } else {
    sum = SumOfBlock<kMostThreads>(sum);
  }
  const float scale = NormScale(sum, args.width, args.epsilon);
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (const int at = first + i * step; at < width) Scale(args, kept[i], scale, at, out);
  }
  for (int at = first + kKept * step; at < width; at += step) {
    float more[kWide];
    Load(x + at, more);
    Scale(args, more, scale, at, out);
  }
  if (width == 0) return;
  for (int at = width + thread; at < args.stride; at += threads) Round(ToFloat(x[at]), out + at);
}

template <class In, class Out, int kWide>
cudaError_t LaunchWide(const RmsNormArgs& args, LaunchStream stream) {
  const std::int64_t vectors = args.width / kWide;
  constexpr int kLanes = 16;  // heads of 128 in vectors of 8
  if (vectors <= kLanes * kKept) {
    return Launch(&RmsNormKernel<In, Out, kWide, kLanes>,
                  Blocks(CeilDiv(args.groups, kHeadThreads / kLanes)), kHeadThreads, stream, args);
  }
  int threads = 2 * kWarp;
  while (threads < kMostThreads && threads < vectors) threads *= 2;
  return Launch(&RmsNormKernel<In, Out, kWide, 0>, Blocks(args.groups), threads, stream, args);
}

}  // namespace

cudaError_t RmsNorm(const RmsNormArgs& given, LaunchStream stream) {
  if (given.groups == 0) return cudaSuccess;
  RmsNormArgs args = given;
  args.stride = std::max(args.stride, args.width);
  return WithValue(args.x_type, [&]<class In>(In) {
    return WithValue(args.out_type, [&]<class Out>(Out) {
      const auto address = [](const void* pointer) { return static_cast<const char*>(pointer); };
      return args.stride % 8 == 0 &&
                     IsWide(args.width, address(args.x), address(args.gamma), address(args.out))
                 ? LaunchWide<In, Out, 8>(args, stream)
                 : LaunchWide<In, Out, 1>(args, stream);
    });
  });
}

}  // namespace culet::cuda_ops
