// Rope: sines and cosines of a row once a block, for some of its heads.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/rope.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;
constexpr int kHeads = 8;          // a block
constexpr int kFrequencies = 128;  // at a time

template <class T, int kWide>
__global__ void __launch_bounds__(kThreads) RopeKernel(const RopeArgs args) {
  WaitForPrevious();
  __shared__ float sines[kFrequencies], cosines[kFrequencies];
  const std::int64_t row = blockIdx.x;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  const int heads = min(kHeads, args.heads - first_head);
  T* const x =
      static_cast<T*>(args.x) + (row * args.heads + first_head) * std::int64_t{args.head_dim};
  const double position = args.positions[row];
  for (int base = 0; base < args.half; base += kFrequencies) {
    const int count = min(kFrequencies, args.half - base);
    __syncthreads();  // the sines before are read
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      float s, c;
      SineCosine(position * args.turns[base + i], &s, &c);
      sines[i] = s * args.attention_factor;
      cosines[i] = c * args.attention_factor;
    }
    __syncthreads();
    const int vectors = count / kWide;
    for (int v = static_cast<int>(threadIdx.x); v < heads * vectors; v += kThreads) {
      const int head = v / vectors, i = (v - head * vectors) * kWide;
      T* const from = x + std::int64_t{head} * args.head_dim + args.first;
      if (args.layout == RopeLayout::kNeox) {
        T *const p = from + base + i, *const q = p + args.half;
        float a[kWide], b[kWide];
        Load(p, a);
        Load(q, b);
#pragma unroll
        for (int j = 0; j < kWide; ++j) Turn(a[j], b[j], cosines[i + j], sines[i + j]);
        Store(a, p);
        Store(b, q);
      } else {
        T* const p = from + 2 * (base + i);
        float pairs[2][kWide];  // halves of the vector, which lies at a multiple of one
        Load(p, pairs[0]);
        Load(p + kWide, pairs[1]);
        if constexpr (kWide == 1) {
          Turn(pairs[0][0], pairs[1][0], cosines[i], sines[i]);
        } else {
#pragma unroll
          for (int j = 0; j < kWide; ++j) {
            float(&half)[kWide] = pairs[j / (kWide / 2)];
            const int at = 2 * j % kWide;
            Turn(half[at], half[at + 1], cosines[i + j], sines[i + j]);
          }
        }
        Store(pairs[0], p);
        Store(pairs[1], p + kWide);
      }
    }
  }
}

}  // namespace

cudaError_t Rope(const RopeArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  return WithValue(args.type, [&]<class T>(T) {
    // Where the heads allow it, 8 elements of each half; else pair by pair.
    const bool wide = IsWide(args.half, static_cast<char*>(args.x)) && args.head_dim % 8 == 0 &&
                      args.first % 8 == 0;
    const dim3 grid = Blocks(args.rows, CeilDiv(args.heads, kHeads));
    return wide ? Launch(&RopeKernel<T, 8>, grid, kThreads, stream, args)
                : Launch(&RopeKernel<T, 1>, grid, kThreads, stream, args);
  });
}

}  // namespace culet::cuda_ops
