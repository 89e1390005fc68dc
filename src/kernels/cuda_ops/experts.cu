// Routed experts: which a token goes to, in the order of experts; products without a matrix
// instruction: a warp takes a row of a chosen expert's weights, whose number is read on the device.
// Decoding reads only the chosen experts; prompts read an expert once for each of its tokens,
// mostly from L2.
#include <algorithm>

#include "kernels/cuda_ops/codes.cuh"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/route.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;  // a block
constexpr int kThreads = kWarp * kWarps;
constexpr int kSortThreads = 256;
constexpr int kFewThreads = 512;  // of the one block that routes few tokens

using E4m3 = __nv_fp8_e4m3;

template <class T>
__global__ void __launch_bounds__(kThreads) RouteKernel(const RouteArgs args) {
  WaitForPrevious();
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row < args.rows)
    RouteToken(args, static_cast<const T*>(args.logits), row, args.ids + row * args.routing.active);
}

template <class T>
__global__ void __launch_bounds__(kFewThreads) RouteFewKernel(const RouteArgs args) {
  __shared__ std::int32_t ids[kFewRoutes];
  WaitForPrevious();
  RouteFew<T, kFewThreads>(args, static_cast<const T*>(args.logits), ids);
}

// The routes in the order of experts: a block an expert. It counts what comes before, so that it
// needs no other block.
__global__ void __launch_bounds__(kSortThreads)
    SortRoutesKernel(const std::int32_t* ids, std::int64_t count, int experts, std::int32_t* starts,
                     std::int32_t* routes, std::int32_t* places) {
  constexpr int kSortWarps = kSortThreads / kWarp;
  __shared__ int found[kSortWarps];
  WaitForPrevious();
  const int expert = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp, warp = thread / kWarp;
  int before = 0;
  for (std::int64_t i = thread; i < count; i += kSortThreads) before += ids[i] < expert ? 1 : 0;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    before += __shfl_xor_sync(kAllLanes, before, offset);
  }
  if (lane == 0) found[warp] = before;
  __syncthreads();
  int place = 0;
  for (int w = 0; w < kSortWarps; ++w) place += found[w];
  __syncthreads();
  if (thread == 0) {
    starts[expert] = place;
    if (expert + 1 == experts) starts[experts] = static_cast<std::int32_t>(count);
  }
  for (std::int64_t first = 0; first < count; first += kSortThreads) {
    const std::int64_t route = first + thread;
    const bool own = route < count && ids[route] == expert;
    const unsigned mask = __ballot_sync(kAllLanes, own ? 1 : 0);
    if (lane == 0) found[warp] = __popc(mask);
    __syncthreads();
    int at = place + __popc(mask & ((1u << lane) - 1u));
    for (int w = 0; w < kSortWarps; ++w) {
      if (w < warp) at += found[w];
      place += found[w];
    }
    if (own) routes[at] = static_cast<std::int32_t>(route), places[route] = at;
    __syncthreads();
  }
}

// The product of row `n` of a weight (rows, k) with row `row` of the inputs, which is x, in every
// lane of the warp.
template <class W, class X>
__device__ __forceinline__ float DotOfWarp(const ExpertProductArgs& args,
                                           const ExpertWeight& expert, std::int64_t n, const X* x,
                                           std::int64_t row) {
  constexpr int kWide = 8;
  const std::int64_t k = args.k;
  const W* const w = static_cast<const W*>(expert.data) + n * k;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float sum = 0;
#pragma unroll 1  // sm_80 converts E4M3 step by step, and spills where two are under way
  for (std::int64_t at = lane * kWide; at < k; at += kWarp * kWide) {
    float a[kWide] = {}, b[kWide] = {};
    if (args.wide) {
      Load(w + at, a);
      Load(x + at, b);
    } else {
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        if (at + i < k) a[i] = ToFloat(w[at + i]), b[i] = ToFloat(x[at + i]);
      }
    }
    float part = 0;
#pragma unroll
    for (int i = 0; i < kWide; ++i) part = fmaf(a[i], b[i], part);
    if constexpr (std::is_same_v<W, E4m3>) {
      const std::int64_t across = (k + args.group_k - 1) / args.group_k;
      const float* const x_scales = args.x_scales + row * ((k + args.x_group - 1) / args.x_group);
      part *=
          static_cast<const float*>(expert.scales)[n / args.group_n * across + at / args.group_k] *
          x_scales[at / args.x_group];
    }
    sum += part;
  }
  return SumLanes<kWarp>(sum);
}

// The same of codes, whose groups are rows or a multiple of 8 elements.
struct Codes {};
template <class X>
__device__ __forceinline__ float DotOfCodes(const ExpertProductArgs& args,
                                            const ExpertWeight& expert, std::int64_t n,
                                            const X* x) {
  constexpr int kWide = 8;
  const std::int64_t k = args.k, across = (k + args.group_k - 1) / args.group_k;
  const char* const w = static_cast<const char*>(expert.data) + n * RowBytes(args.weight_type, k);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float sum = 0;
  for (std::int64_t at = lane * kWide; at < k; at += kWarp * kWide) {
    float a[kWide], b[kWide] = {};
    LoadCodes(w, args.weight_type, at, k, a);
    if (args.wide) {
      Load(x + at, b);
    } else {
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        if (at + i < k) b[i] = ToFloat(x[at + i]);
      }
    }
    const std::int64_t group = n * across + at / args.group_k;
    const float zero =
        expert.zeros != nullptr ? ScaleOf(expert.zeros, args.zeros_type, group) : 0.0f;
    float part = 0;
#pragma unroll
    for (int i = 0; i < kWide; ++i) part = fmaf(a[i] - zero, b[i], part);
    sum = fmaf(part, ScaleOf(expert.scales, args.scales_type, group), sum);
  }
  return SumLanes<kWarp>(sum);
}

// The expert of a place in the order of experts.
__device__ __forceinline__ int ExpertAt(const std::int32_t* starts, int experts,
                                        std::int64_t place) {
  int low = 0, high = experts - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (starts[middle] <= place) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// A warp for each element of the value.
template <class W, class X>
__global__ void __launch_bounds__(kThreads) ExpertProductKernel(const ExpertProductArgs args) {
  WaitForPrevious();
  const std::int64_t index = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const std::int64_t place = index / args.n, n = index - place * args.n;
  if (place >= args.rows || place < args.starts[0] || place >= args.starts[args.experts]) return;
  const int id = ExpertAt(args.starts, args.experts, place);
  const std::int64_t route = args.routes[place];
  const std::int64_t row = args.active > 0 ? route / args.active : place;
  const auto* const x = static_cast<const X*>(args.x) + row * args.k;
  const ExpertWeight& expert = args.weights[id];
  float value;
  if constexpr (std::is_same_v<W, Codes>) {
    value = DotOfCodes(args, expert, n, x);
  } else {
    value = DotOfWarp<W>(args, expert, n, x, row);
  }
  if (threadIdx.x % kWarp != 0) return;
  if (args.shares != nullptr) value *= args.shares[route];
  if (expert.bias != nullptr) {
    value += StoredAt(expert.bias, args.bias_type, n);
  }
  if (args.out_type == DataType::kFloat32) {
    static_cast<float*>(args.out)[index] = value;
  } else {
    Round(value, static_cast<__nv_bfloat16*>(args.out) + index);
  }
}

// A thread for kWide elements of the sums. All of its loads of up to eight rows are under way at
// once, since nothing but their latency counts where tokens are few.
template <class X, class Out, int kWide>
__global__ void __launch_bounds__(kThreads) CombineKernel(const CombineArgs args) {
  constexpr int kAtOnce = 8;
  if (args.early) {
    LetNextBegin();
  } else {
    WaitForPrevious();
  }
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  const std::int64_t row = index / args.cols, c = index - row * args.cols;
  const bool there = row < args.rows;
  const int begin = args.first != nullptr ? *args.first : 0;
  const int end = args.end != nullptr ? *args.end : 0x7FFFFFFF;
  float sum[kWide] = {};
  for (std::int64_t first = 0; first < args.active; first += kAtOnce) {
    std::int32_t places[kAtOnce];
    float shares[kAtOnce], x[kAtOnce][kWide];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const bool has = there && first + i < args.active;
      const std::int64_t route = row * args.active + first + i;
      places[i] = has ? args.places[route] : -1;
      if (places[i] < begin || places[i] >= end) places[i] = -1;
      shares[i] = has && args.shares != nullptr ? args.shares[route] : 1.0f;
    }
    if (args.early && first == 0) AwaitPrevious();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (places[i] >= 0) Load(static_cast<const X*>(args.x) + places[i] * args.cols + c, x[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (places[i] < 0) continue;
#pragma unroll
      for (int e = 0; e < kWide; ++e) sum[e] = fmaf(shares[i], x[i][e], sum[e]);
    }
  }
  if (there) Store(sum, static_cast<Out*>(args.out) + index);
}

}  // namespace

cudaError_t Route(const RouteArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  if (args.rows * args.routing.active <= kFewRoutes) {
    return WithValue(args.type, [&]<class T>(T) {
      return Launch(&RouteFewKernel<T>, dim3(1), kFewThreads, stream, args);
    });
  }
  const cudaError_t error = WithValue(args.type, [&]<class T>(T) {
    return Launch(&RouteKernel<T>, Blocks(CeilDiv(args.rows, kWarps)), kThreads, stream, args);
  });
  if (error != cudaSuccess) return error;
  return Launch(&SortRoutesKernel, Blocks(args.experts), kSortThreads, stream,
                static_cast<const std::int32_t*>(args.ids), args.rows * args.routing.active,
                args.experts, args.starts, args.routes, args.places);
}

cudaError_t ExpertProduct(const ExpertProductArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  const dim3 grid = Blocks(CeilDiv(args.rows * args.n, kWarps));
  if (args.weight_type == DataType::kFloat8_e4m3) {
    return Launch(&ExpertProductKernel<E4m3, E4m3>, grid, kThreads, stream, args);
  }
  if (args.scales_type != DataType::kNull) {
    return WithValue(args.x_type, [&]<class X>(X) {
      return Launch(&ExpertProductKernel<Codes, X>, grid, kThreads, stream, args);
    });
  }
  return WithStored(args.weight_type, [&]<class W>(W) {
    return WithValue(args.x_type, [&]<class X>(X) {
      return Launch(&ExpertProductKernel<W, X>, grid, kThreads, stream, args);
    });
  });
}

cudaError_t Combine(const CombineArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  const auto launch = [&]<int kWide>(std::integral_constant<int, kWide>) {
    const dim3 grid = Blocks(CeilDiv(args.rows * args.cols, kThreads * kWide));
    return WithValue(args.x_type, [&]<class X>(X) {
      return WithValue(args.out_type, [&]<class Out>(Out) {
        return Launch(&CombineKernel<X, Out, kWide>, grid, kThreads, stream, args);
      });
    });
  };
  const bool wide = args.cols % 4 == 0 && IsWide(0, args.x, args.out);
  return wide ? launch(std::integral_constant<int, 4>{}) : launch(std::integral_constant<int, 1>{});
}

}  // namespace culet::cuda_ops
