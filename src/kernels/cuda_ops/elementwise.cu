// Add, Mul, Silu and SwiGlu: a vector of each operand a thread.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;

template <ElementOp kOp>
__device__ __forceinline__ float Apply(float x, float y) {
  if constexpr (kOp == ElementOp::kAdd) return x + y;
  if constexpr (kOp == ElementOp::kMul) return x * y;
  if constexpr (kOp == ElementOp::kSilu) return Silu(x);
  return Silu(x) * y;
}

template <class T, ElementOp kOp, int kWide>
__global__ void __launch_bounds__(kThreads)
    ElementWiseKernel(const T* a, const T* b, T* out, std::int64_t n) {
  WaitForPrevious();
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  if (first >= n) return;
  float x[kWide], y[kWide];
  Load(a + first, x);
  if constexpr (kOp != ElementOp::kSilu) Load(b + first, y);
#pragma unroll
  for (int i = 0; i < kWide; ++i) x[i] = Apply<kOp>(x[i], kOp == ElementOp::kSilu ? 0.0f : y[i]);
  Store(x, out + first);
}

template <class T, ElementOp kOp>
cudaError_t LaunchOp(const void* a, const void* b, void* out, std::int64_t n, LaunchStream stream) {
  const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(out);
  return IsWide(n, x, y, z) ? Launch(&ElementWiseKernel<T, kOp, 8>,
                                     Blocks(CeilDiv(n, kThreads * 8)), kThreads, stream, x, y, z, n)
                            : Launch(&ElementWiseKernel<T, kOp, 1>, Blocks(CeilDiv(n, kThreads)),
                                     kThreads, stream, x, y, z, n);
}

}  // namespace

cudaError_t ElementWise(ElementOp op, DataType type, const void* a, const void* b, void* out,
                        std::int64_t n, LaunchStream stream) {
  if (n == 0) return cudaSuccess;
  return WithValue(type, [&]<class T>(T) {
    switch (op) {
      case ElementOp::kAdd:
        return LaunchOp<T, ElementOp::kAdd>(a, b, out, n, stream);
      case ElementOp::kMul:
        return LaunchOp<T, ElementOp::kMul>(a, b, out, n, stream);
      case ElementOp::kSilu:
        return LaunchOp<T, ElementOp::kSilu>(a, a, out, n, stream);
      case ElementOp::kSwiGlu:
        return LaunchOp<T, ElementOp::kSwiGlu>(a, b, out, n, stream);
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace culet::cuda_ops
