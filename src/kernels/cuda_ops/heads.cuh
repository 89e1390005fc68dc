// What heads of q, k and v become before attention: sixteen lanes a head, eight elements of every
// 128 a lane.
#pragma once

#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/rms_norm.cuh"
#include "kernels/cuda_ops/rope.cuh"

namespace culet::cuda_ops {

inline constexpr int kHeadLanes = 16, kHeadWide = 8;

/// x normalised, if `norm`; all lanes take part.
template <class T, int kKept>
__device__ __forceinline__ void NormHead(float (&x)[kKept][kHeadWide],
                                         const float (&gamma)[kKept][kHeadWide], bool norm,
                                         int size, float epsilon) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) sum += SumOfSquares(x[i]);
  const float scale = NormScale(SumLanes<kHeadLanes>(sum), size, epsilon);
  if (!norm) return;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
#pragma unroll
    for (int j = 0; j < kHeadWide; ++j) x[i][j] = Rounded<T>(x[i][j] * scale * gamma[i][j]);
  }
}

/// x turned, if `turns`; all lanes of the warp take part. Requires: of kNeox, `half` a multiple of
/// kHeadWide.
template <class T, int kKept>
__device__ __forceinline__ void TurnHead(float (&x)[kKept][kHeadWide], bool turns,
                                         RopeLayout layout, int half, const float* sines,
                                         const float* cosines) {
  static_assert(kKept <= 2);
  const int lane = static_cast<int>(threadIdx.x) % kHeadLanes;
  if (layout == RopeLayout::kNeox) {
    const int apart = half / kHeadWide;  // vectors between the two of a pair
    float other[kKept][kHeadWide];
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int vector = i * kHeadLanes + lane;
      const int partner = vector < apart ? vector + apart : vector - apart;
#pragma unroll
      for (int j = 0; j < kHeadWide; ++j) {
        other[i][j] = __shfl_sync(kAllLanes, x[0][j], partner % kHeadLanes, kHeadLanes);
        if constexpr (kKept > 1) {
          const float far = __shfl_sync(kAllLanes, x[1][j], partner % kHeadLanes, kHeadLanes);
          if (partner >= kHeadLanes) other[i][j] = far;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int vector = i * kHeadLanes + lane;
      if (!turns || vector >= 2 * apart) continue;
      const bool second = vector >= apart;
      const int pair = (second ? vector - apart : vector) * kHeadWide;
#pragma unroll
      for (int j = 0; j < kHeadWide; ++j) {
        float a = second ? other[i][j] : x[i][j], b = second ? x[i][j] : other[i][j];
        Turn(a, b, cosines[pair + j], sines[pair + j]);
        x[i][j] = Rounded<T>(second ? b : a);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
#pragma unroll
      for (int j = 0; j < kHeadWide; j += 2) {
        const int pair = ((i * kHeadLanes + lane) * kHeadWide + j) / 2;
        if (!turns || pair >= half) continue;
        float a = x[i][j], b = x[i][j + 1];
        Turn(a, b, cosines[pair], sines[pair]);
        x[i][j] = Rounded<T>(a);
        x[i][j + 1] = Rounded<T>(b);
      }
    }
  }
}

}  // namespace culet::cuda_ops
