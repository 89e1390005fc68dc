// FusedNorm: a block a row, in the order of RmsNorm's sums.
#include <type_traits>

#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/fused_norm.cuh"
#include "kernels/cuda_ops/launch.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kMostThreads = 512;

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

template <class X, class Out, bool kCodes, bool kOne>
__global__ void __launch_bounds__(kMostThreads, (kBlocks<X, kCodes, kOne>))
    FusedNormKernel(const FusedNormArgs args) {
  __shared__ float warps[kMostThreads / kWarp];
  const NormOfRows<X, Out, kCodes, kOne> norm(args);
  WaitForPrevious();
  norm.Make(args, blockIdx.x, warps, true, nullptr);
}

}  // namespace

cudaError_t FusedNorm(const FusedNormArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  const int vectors = args.width / 8;
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
