// FusedSwiGlu: a vector of gate and up a thread, sixteen threads a group of codes.
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
  const std::int64_t groups = (args.cols + kQuantGroup - 1) / kQuantGroup;  // of a row
  const std::int64_t index =
      std::int64_t{blockIdx.x} * (kThreads / kQuantLanes) + threadIdx.x / kQuantLanes;
  const std::int64_t row = index / groups;
  const int lane = static_cast<int>(threadIdx.x) % kQuantLanes;
  const std::int64_t col = (index - row * groups) * kQuantGroup + lane * kQuantEach;
  const bool there = row < args.rows && col < args.cols;
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
    const std::int64_t groups = args.rows * CeilDiv(args.cols, kQuantGroup);
    return Launch(
        args.to.codes != nullptr ? &FusedSwiGluKernel<T, true> : &FusedSwiGluKernel<T, false>,
        Blocks(CeilDiv(groups, kThreads / kQuantLanes)), kThreads, stream, args);
  });
}

}  // namespace culet::cuda_ops
