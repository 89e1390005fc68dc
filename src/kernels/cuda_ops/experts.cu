// Routed experts without a matrix product: a warp takes a row of a chosen expert's weights, whose
// number is read on the device. Decoding reads only the chosen experts; prompts read an expert once
// for each of its tokens, mostly from L2.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/order.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;  // a block
constexpr int kThreads = kWarp * kWarps;
constexpr int kQuantGroup = 128;

using E4m3 = __nv_fp8_e4m3;

// The experts that a row goes to, largest first, and their shares.
template <class T>
__global__ void __launch_bounds__(kThreads)
    RouteKernel(const T* logits, std::int64_t rows, int experts, int active, bool renormalize,
                std::int32_t* ids, float* shares) {
  WaitForPrevious();
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= rows) return;
  logits += row * experts, ids += row * active, shares += row * active;
  std::uint64_t last = ~std::uint64_t{0};
  float most = 0, chosen = 0;
  for (int i = 0; i < active; ++i) {
    std::uint64_t best = 0;
    for (int e = lane; e < experts; e += kWarp) {
      const std::uint64_t key = KeyOf(ToFloat(logits[e]), static_cast<std::uint32_t>(e));
      if (key < last && key > best) best = key;
    }
    last = LargestOfWarp(best);
    const std::int32_t id = IndexOf(last);
    const float logit = ToFloat(logits[id]);
    if (i == 0) most = logit;
    const float part = expf(logit - most);
    chosen += part;
    if (lane == 0) ids[i] = id, shares[i] = part;
  }
  float sum = 0;
  for (int e = lane; e < experts; e += kWarp) sum += expf(ToFloat(logits[e]) - most);
  sum = SumLanes<kWarp>(sum);
  if (lane == 0) {
    for (int i = 0; i < active; ++i) shares[i] /= renormalize ? chosen : sum;
  }
}

// Rows that experts multiply: FP32, or E4M3 with scales of groups of 128.
template <class W>
struct Input {
  using Element = float;
};
template <>
struct Input<E4m3> {
  using Element = E4m3;
};

// The product of row `n` of a weight (rows, k) with a row of inputs, in every lane of the warp.
template <class W>
__device__ __forceinline__ float DotOfWarp(const void* weight, const float* weight_scales,
                                           int group, std::int64_t n, std::int64_t k,
                                           const typename Input<W>::Element* x,
                                           const float* x_scales, bool wide) {
  constexpr int kWide = 8;
  const W* const w = static_cast<const W*>(weight) + n * k;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float sum = 0;
#pragma unroll 1  // sm_80 converts E4M3 step by step, and spills where two are under way
  for (std::int64_t at = lane * kWide; at < k; at += kWarp * kWide) {
    float a[kWide] = {}, b[kWide] = {};
    if (wide) {
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
      const std::int64_t across = (k + group - 1) / group;
      part *= weight_scales[n / group * across + at / group] * x_scales[at / kQuantGroup];
    }
    sum += part;
  }
  return SumLanes<kWarp>(sum);
}

// inner (rows * active, width) = silu(gate x) * (up x), a warp for each element.
template <class W>
__global__ void __launch_bounds__(kThreads) ExpertsInKernel(const ExpertsArgs args) {
  WaitForPrevious();
  const std::int64_t index = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const std::int64_t route = index / args.width, n = index - route * args.width;
  const std::int64_t row = route / args.active;
  if (row >= args.rows) return;
  const ExpertPointers& expert = args.experts[args.ids[route]];
  const auto* const x = static_cast<const typename Input<W>::Element*>(args.x) + row * args.hidden;
  const float* const scales = args.x_scales + row * ((args.hidden + kQuantGroup - 1) / kQuantGroup);
  const float gate = DotOfWarp<W>(expert.gate, expert.gate_scales, args.group, n, args.hidden, x,
                                  scales, args.wide_in);
  const float up = DotOfWarp<W>(expert.up, expert.up_scales, args.group, n, args.hidden, x, scales,
                                args.wide_in);
  if (threadIdx.x % kWarp == 0) args.inner[index] = Silu(gate) * up;
}

// out (rows, hidden) = the sum over a row's experts of share * (down inner), in their order.
template <class W>
__global__ void __launch_bounds__(kThreads) ExpertsOutKernel(const ExpertsArgs args) {
  WaitForPrevious();
  const std::int64_t index = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const std::int64_t row = index / args.hidden, n = index - row * args.hidden;
  if (row >= args.rows) return;
  float sum = 0;
  for (int i = 0; i < args.active; ++i) {
    const std::int64_t route = row * args.active + i;
    const ExpertPointers& expert = args.experts[args.ids[route]];
    const auto* const x =
        static_cast<const typename Input<W>::Element*>(args.inner_read) + route * args.width;
    const float* const scales =
        args.inner_scales + route * ((args.width + kQuantGroup - 1) / kQuantGroup);
    sum = fmaf(args.shares[route],
               DotOfWarp<W>(expert.down, expert.down_scales, args.group, n, args.width, x, scales,
                            args.wide_out),
               sum);
  }
  if (threadIdx.x % kWarp != 0) return;
  if (args.out_type == DataType::kFloat32) {
    static_cast<float*>(args.out)[index] = sum;
  } else {
    Round(sum, static_cast<__nv_bfloat16*>(args.out) + index);
  }
}

template <class Function>
cudaError_t WithWeight(DataType type, Function&& function) {
  return type == DataType::kFloat8_e4m3 ? function(E4m3{})
                                        : WithStored(type, std::forward<Function>(function));
}

}  // namespace

cudaError_t Route(const void* logits, DataType type, std::int64_t rows, int experts, int active,
                  bool renormalize, std::int32_t* ids, float* shares, LaunchStream stream) {
  if (rows == 0) return cudaSuccess;
  return WithValue(type, [&]<class T>(T) {
    return Launch(&RouteKernel<T>, Blocks(CeilDiv(rows, kWarps)), kThreads, stream,
                  static_cast<const T*>(logits), rows, experts, active, renormalize, ids, shares);
  });
}

cudaError_t ExpertsIn(const ExpertsArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  return WithWeight(args.weight_type, [&]<class W>(W) {
    const std::int64_t blocks = CeilDiv(args.rows * args.active * args.width, kWarps);
    return Launch(&ExpertsInKernel<W>, Blocks(blocks), kThreads, stream, args);
  });
}

cudaError_t ExpertsOut(const ExpertsArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  return WithWeight(args.weight_type, [&]<class W>(W) {
    return Launch(&ExpertsOutKernel<W>, Blocks(CeilDiv(args.rows * args.hidden, kWarps)), kThreads,
                  stream, args);
  });
}

}  // namespace culet::cuda_ops
