// FusedSwiGlu: each thread takes a vector of gate and up, sixteen threads a group of codes.
#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/quantize.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;

template <class T, bool kCodes>
__global__ void __launch_bounds__(kThreads) FusedSwiGluKernel(const FusedSwiGluArgs args) {
  WaitForPrevious();
  const std::int64_t row = blockIdx.x;
  const std::int64_t col = (std::int64_t{blockIdx.y} * kThreads + threadIdx.x) * kQuantEach;
  const bool there = col < args.cols;
  float gate[kQuantEach] = {}, up[kQuantEach] = {};
  if (there) {
    Load(static_cast<const T*>(args.gate) + row * args.stride + col, gate);
    Load(static_cast<const T*>(args.up) + row * args.stride + col, up);
  }
#pragma unroll
  for (int i = 0; i < kQuantEach; ++i) gate[i] = Rounded<T>(Silu(gate[i]) * up[i]);
  if (there && args.out != nullptr) Store(gate, static_cast<T*>(args.out) + row * args.cols + col);
  if constexpr (kCodes) {
    unsigned packed[2];
    const float scale = QuantizeGroup(gate, packed);
    if (there) StoreCodes(packed, scale, row, col, args.cols, args.to.codes, args.to.scales);
  }
}

}  // namespace

cudaError_t FusedSwiGlu(const FusedSwiGluArgs& args, LaunchStream stream) {
  if (args.rows == 0 || args.cols == 0) return cudaSuccess;
  return WithValue(args.type, [&]<class T>(T) {
    return Launch(
        args.to.codes != nullptr ? &FusedSwiGluKernel<T, true> : &FusedSwiGluKernel<T, false>,
        Blocks(args.rows, CeilDiv(args.cols, kThreads * kQuantEach)), kThreads, stream, args);
  });
}

}  // namespace culet::cuda_ops
