// Rows of a weight of codes as numbers, for an embedding.
#include "kernels/cuda_ops/codes.cuh"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;
constexpr int kEach = 8;  // elements a thread

template <class To>
__global__ void __launch_bounds__(kThreads) RowsOfCodesKernel(const RowsOfCodesArgs args) {
  WaitForPrevious();
  const CodesWeight& weight = args.weight;
  const std::int64_t pieces = (weight.cols + kEach - 1) / kEach;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= args.rows * pieces) return;
  const std::int64_t to = index / pieces, at = (index - to * pieces) * kEach;
  const std::int64_t row = args.from[to];
  const bool exists = row >= 0 && row < weight.rows;
  const std::int64_t across = (weight.cols + weight.group - 1) / weight.group;
  float codes[kEach] = {};
  if (exists) {
    LoadCodes(static_cast<const char*>(weight.data) + row * RowBytes(weight.type, weight.cols),
              weight.type, at, weight.cols, codes);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (at + i >= weight.cols) continue;
    float value = NotANumber();
    if (exists) {
      const std::int64_t group = row * across + (at + i) / weight.group;
      const float zero =
          weight.zeros != nullptr ? ScaleOf(weight.zeros, weight.zeros_type, group) : 0.0f;
      value = (codes[i] - zero) * ScaleOf(weight.scales, weight.scales_type, group);
    }
    Round(value, static_cast<To*>(args.target) + to * weight.cols + at + i);
  }
}

}  // namespace

cudaError_t RowsOfCodes(const RowsOfCodesArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  const std::int64_t threads = args.rows * CeilDiv(args.weight.cols, kEach);
  return WithValue(args.target_type, [&]<class To>(To) {
    return Launch(&RowsOfCodesKernel<To>, Blocks(CeilDiv(threads, kThreads)), kThreads, stream,
                  args);
  });
}

}  // namespace culet::cuda_ops
