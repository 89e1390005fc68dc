// FusedNorm: a block a row, in the order of RmsNorm's sums.
#include <type_traits>

#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/quantize.cuh"
#include "kernels/cuda_ops/rms_norm.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kMostThreads = 512;
constexpr int kWide = 8;

// Elements of x + y, rounded as if stored; of x if `y` is null.
template <class X>
__device__ __forceinline__ void LoadSum(const X* x, const X* y, int at, float (&to)[kWide]) {
  Load(x + at, to);
  if (y == nullptr) return;
  float more[kWide];
  Load(y + at, more);
#pragma unroll
  for (int i = 0; i < kWide; ++i) to[i] = Rounded<X>(to[i] + more[i]);
}

// All lanes of a warp come, those beyond the row's end with zeros.
template <class Out, bool kCodes>
__device__ __forceinline__ void Finish(const FusedNormArgs& args, float (&x)[kWide], float scale,
                                       const float (&gamma)[kWide], std::int64_t row, int at) {
#pragma unroll
  for (int i = 0; i < kWide; ++i) x[i] = Rounded<Out>(x[i] * scale * gamma[i]);
  const bool there = at < args.width;
  if (there && args.out != nullptr) Store(x, static_cast<Out*>(args.out) + row * args.width + at);
  if constexpr (kCodes) {
    unsigned packed[2];
    const float group_scale = QuantizeGroup(x, packed);
    if (there) {
      StoreCodes(packed, group_scale, row, at, args.width, args.to.codes, args.to.scales);
    }
  }
}

// A multiprocessor has to hold several blocks: each of them waits for its row's sum between its
// loads and its stores. With two vectors of FP32 and codes two blocks' registers do not suffice; on
// sm_120 they do not suffice with two vectors of any type.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr bool kMoreRegisters = true;
#else
constexpr bool kMoreRegisters = false;
#endif
template <class X, bool kCodes, bool kOne>
constexpr int kBlocks = kOne                                           ? 3
                        : kMoreRegisters || (kCodes && sizeof(X) == 4) ? 1
                                                                       : 2;

// kOne: a thread has one vector of a row at most.
template <class X, class Out, bool kCodes, bool kOne>
__global__ void __launch_bounds__(kMostThreads, (kBlocks<X, kCodes, kOne>))
    FusedNormKernel(const FusedNormArgs args) {
  constexpr int kKept = kOne ? 1 : 2;  // vectors that stay in registers between the passes
  const std::int64_t row = blockIdx.x;
  const int width = args.width, step = static_cast<int>(blockDim.x) * kWide;
  const int first = static_cast<int>(threadIdx.x) * kWide;
  float gammas[kKept][kWide] = {};
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = first + i * step;
    if (at < width) LoadStored(args.gamma, args.gamma_type, at, gammas[i]);
  }
  WaitForPrevious();
  std::int64_t source = row;
  bool missing = false;
  if (args.from != nullptr) {
    source = args.from[row];
    missing = source < 0 || source >= args.source_rows;
    if (missing) source = 0;  // of which nothing is left but NaN
  }
  const X* const x = static_cast<const X*>(args.x) + source * width;
  const X* const y = args.y == nullptr ? nullptr : static_cast<const X*>(args.y) + source * width;
  float kept[kKept][kWide] = {};
  float sum = 0;
  X* const sums = args.sum == nullptr ? nullptr : static_cast<X*>(args.sum) + row * width;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (const int at = first + i * step; at < width) LoadSum<X>(x, y, at, kept[i]);
  }
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (const int at = first + i * step; at < width) {
      if (sums != nullptr) Store(kept[i], sums + at);
      sum += SumOfSquares(kept[i]);
    }
  }
  for (int at = first + kKept * step; !kOne && at < width; at += step) {
    float more[kWide];
    LoadSum<X>(x, y, at, more);
    if (sums != nullptr) Store(more, sums + at);
    sum += SumOfSquares(more);
  }
  float scale = NormScale(SumOfBlock<kMostThreads>(sum), width, args.epsilon);
  if (missing) scale = NotANumber();
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = first + i * step;
    if (at - first < width) Finish<Out, kCodes>(args, kept[i], scale, gammas[i], row, at);
  }
  for (int base = kKept * step; !kOne && base < width; base += step) {
    const int at = base + first;
    float more[kWide] = {}, gamma[kWide] = {};
    if (at < width) {
      // The sum may lie over what it was made of.
      if (sums != nullptr) {
        Load(sums + at, more);
      } else {
        LoadSum<X>(x, y, at, more);
      }
      LoadStored(args.gamma, args.gamma_type, at, gamma);
    }
    Finish<Out, kCodes>(args, more, scale, gamma, row, at);
  }
}

}  // namespace

cudaError_t FusedNorm(const FusedNormArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  const int vectors = args.width / kWide;
  int threads = 2 * kWarp;
  while (threads < kMostThreads && threads < vectors) threads *= 2;
  return WithValue(args.x_type, [&]<class X>(X) {
    return WithValue(args.out_type, [&]<class Out>(Out) {
      const auto launch = [&]<bool kOne>(std::bool_constant<kOne>) {
        return Launch(args.to.codes != nullptr ? &FusedNormKernel<X, Out, true, kOne>
                                               : &FusedNormKernel<X, Out, false, kOne>,
                      Blocks(args.rows), threads, stream, args);
      };
      return vectors <= threads ? launch(std::true_type{}) : launch(std::false_type{});
    });
  });
}

}  // namespace culet::cuda_ops
