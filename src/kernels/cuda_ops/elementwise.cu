// Element by element: a vector of each operand a thread.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;

template <ElementOp kOp>
constexpr bool kHasTwo =
    kOp == ElementOp::kAdd || kOp == ElementOp::kMul || kOp == ElementOp::kSwiGlu ||
    kOp == ElementOp::kGeGlu || kOp == ElementOp::kClampedSwiGlu || kOp == ElementOp::kSigmoidGate;

template <ElementOp kOp>
__device__ __forceinline__ float Apply(float x, float y, float scalar, float slope) {
  if constexpr (kOp == ElementOp::kAdd) return x + y;
  if constexpr (kOp == ElementOp::kMul) return x * y;
  if constexpr (kOp == ElementOp::kSilu) return Silu(x);
  if constexpr (kOp == ElementOp::kGeGlu) return GeluTanh(x) * y;
  if constexpr (kOp == ElementOp::kClampedSwiGlu) {
    // Comparisons that a NaN fails, so that it stays one.
    const float gate = x > scalar ? scalar : x;
    const float up = y > scalar ? scalar : y < -scalar ? -scalar : y;
    return gate / (1.0f + expf(-slope * gate)) * (up + 1.0f);
  }
  if constexpr (kOp == ElementOp::kSigmoidGate) return x / (1.0f + expf(-y));
  if constexpr (kOp == ElementOp::kScale) return scalar * x;
  if constexpr (kOp == ElementOp::kSoftCap) return scalar * tanhf(x / scalar);
  return Silu(x) * y;
}

template <class T, ElementOp kOp, int kWide>
__global__ void __launch_bounds__(kThreads)
    ElementWiseKernel(const T* a, const T* b, T* out, std::int64_t n, float scalar, float slope) {
  WaitForPrevious();
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  if (first >= n) return;
  float x[kWide], y[kWide] = {};
  Load(a + first, x);
  if constexpr (kHasTwo<kOp>) Load(b + first, y);
#pragma unroll
  for (int i = 0; i < kWide; ++i) x[i] = Apply<kOp>(x[i], y[i], scalar, slope);
  Store(x, out + first);
}

template <class T, ElementOp kOp>
cudaError_t LaunchOp(const void* a, const void* b, void* out, std::int64_t n, float scalar,
                     float slope, LaunchStream stream) {
  const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(out);
  return IsWide(n, x, y, z)
             ? Launch(&ElementWiseKernel<T, kOp, 8>, Blocks(CeilDiv(n, kThreads * 8)), kThreads,
                      stream, x, y, z, n, scalar, slope)
             : Launch(&ElementWiseKernel<T, kOp, 1>, Blocks(CeilDiv(n, kThreads)), kThreads, stream,
                      x, y, z, n, scalar, slope);
}

}  // namespace

cudaError_t ElementWise(ElementOp op, DataType type, const void* a, const void* b, void* out,
                        std::int64_t n, float scalar, float slope, LaunchStream stream) {
  if (n == 0) return cudaSuccess;
  return WithValue(type, [&]<class T>(T) {
    const auto launch = [&]<ElementOp kOp>() {
      return LaunchOp<T, kOp>(a, kHasTwo<kOp> ? b : a, out, n, scalar, slope, stream);
    };
    switch (op) {
      case ElementOp::kAdd:
        return launch.template operator()<ElementOp::kAdd>();
      case ElementOp::kMul:
        return launch.template operator()<ElementOp::kMul>();
      case ElementOp::kSilu:
        return launch.template operator()<ElementOp::kSilu>();
      case ElementOp::kSwiGlu:
        return launch.template operator()<ElementOp::kSwiGlu>();
      case ElementOp::kGeGlu:
        return launch.template operator()<ElementOp::kGeGlu>();
      case ElementOp::kClampedSwiGlu:
        return launch.template operator()<ElementOp::kClampedSwiGlu>();
      case ElementOp::kSigmoidGate:
        return launch.template operator()<ElementOp::kSigmoidGate>();
      case ElementOp::kScale:
        return launch.template operator()<ElementOp::kScale>();
      case ElementOp::kSoftCap:
        return launch.template operator()<ElementOp::kSoftCap>();
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace culet::cuda_ops
