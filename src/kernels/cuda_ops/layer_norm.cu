// Layer norm of rows, and rows scaled by their position: a block each.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/rms_norm.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;

// The row is read three times, so that the variance has no cancellation.
template <class In, class Out>
__global__ void __launch_bounds__(kThreads) LayerNormKernel(const RmsNormArgs args) {
  WaitForPrevious();
  const In* const x = static_cast<const In*>(args.x) + std::int64_t{blockIdx.x} * args.width;
  Out* const out = static_cast<Out*>(args.out) + std::int64_t{blockIdx.x} * args.width;
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0, squares = 0;
  for (int i = thread; i < args.width; i += kThreads) sum += ToFloat(x[i]);
  const float mean = SumOfBlock<kThreads>(sum) / static_cast<float>(args.width);
  for (int i = thread; i < args.width; i += kThreads) {
    const float from_mean = ToFloat(x[i]) - mean;
    squares = fmaf(from_mean, from_mean, squares);
  }
  __syncthreads();  // the sums of warps are read
  const float scale = NormScale(SumOfBlock<kThreads>(squares), args.width, args.epsilon);
  for (int i = thread; i < args.width; i += kThreads) {
    float gamma[1];
    LoadStored(args.gamma, args.gamma_type, i, gamma);
    Round((ToFloat(x[i]) - mean) * scale * gamma[0], out + i);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) PositionScaleKernel(const PositionScaleArgs args) {
  WaitForPrevious();
  const std::int64_t row = blockIdx.x;
  const double turns = floor((args.positions[row] + args.ahead) / args.original);
  const float factor = static_cast<float>(1.0 + static_cast<double>(args.by) * log1p(turns));
  const T* const x = static_cast<const T*>(args.x) + row * args.cols;
  T* const out = static_cast<T*>(args.out) + row * args.cols;
  for (std::int64_t i = threadIdx.x; i < args.cols; i += kThreads) {
    Round(ToFloat(x[i]) * factor, out + i);
  }
}

}  // namespace

cudaError_t LayerNorm(const RmsNormArgs& args, LaunchStream stream) {
  if (args.groups == 0) return cudaSuccess;
  return WithValue(args.x_type, [&]<class In>(In) {
    return WithValue(args.out_type, [&]<class Out>(Out) {
      return Launch(&LayerNormKernel<In, Out>, Blocks(args.groups), kThreads, stream, args);
    });
  });
}

cudaError_t PositionScale(const PositionScaleArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  return WithValue(args.type, [&]<class T>(T) {
    return Launch(&PositionScaleKernel<T>, Blocks(args.rows), kThreads, stream, args);
  });
}

}  // namespace culet::cuda_ops
