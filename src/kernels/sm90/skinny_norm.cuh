// Before a product with few rows: the norm of what becomes A, in shared memory.
//
// Every CTA makes all of A for itself, while its first weights are on their way: a row is a few
// kilobytes, which lie in the L2 cache, and a kernel of its own would take as long as some products
// do. Sums have the order of cuda_ops/fused_norm.cu, whatever this CTA's size, so the bits are that
// kernel's.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda_ops/rms_norm.cuh"
#include "kernels/cuda_ops/values.cuh"
#include "kernels/sm90/skinny_fused.h"
#include "sm90/format.h"

namespace culet::sm90 {

/// The norm as warp `warp` of `warps` takes part in it.
template <class Format>
class SkinnyNorm {
 public:
  __device__ __forceinline__ SkinnyNorm(const FusedSkinnyParams& p, std::uint8_t* shared, int warp,
                                        int warps, int lane)
      : p_(p), shared_(shared), warp_(warp), warps_(warps), lane_(lane) {}

  /// copy(to, from) of each 16 bytes of gamma, which no kernel writes.
  template <class Copy>
  __device__ __forceinline__ void FetchGamma(const Copy& copy) const {
    const int bytes = p_.elements * (p_.gamma_type == DataType::kFloat32 ? 4 : 2);
#pragma unroll 1
    for (int at = (warp_ * 32 + lane_) * 16; at < bytes; at += warps_ * 512)
      copy(shared_ + p_.gamma_at + at, static_cast<const std::uint8_t*>(p_.gamma) + at);
  }

  /// A, of x and y. wait() returns when this thread's part of gamma is there. All threads of the
  /// CTA come; A is there for all of them on return.
  template <class Wait>
  __device__ __forceinline__ void Make(const Wait& wait) const {
    const int steps = p_.norm_steps, last = (1 << p_.turn_shift) - 1;
    const bool kept = steps <= kTogether;  // in registers between the passes
    float sum = 0;
    float x[kTogether][kWide];
#pragma unroll 1
    for (int first = 0; first < steps; first += kTogether) {
      float y[kTogether][kWide];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) Load(p_.x, At(first + i), x[i]);
      if (p_.y != nullptr) {
#pragma unroll
        for (int i = 0; i < kTogether; ++i) Load(p_.y, At(first + i), y[i]);
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
#pragma unroll
          for (int e = 0; e < kWide; ++e) x[i][e] += y[i][e];
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const Place place = At(first + i);
        if (place.token >= p_.m) break;
        if (!kept) {
          float4* const stage = Stage(first + i);
          stage[0] = make_float4(x[i][0], x[i][1], x[i][2], x[i][3]);
          stage[32] = make_float4(x[i][4], x[i][5], x[i][6], x[i][7]);
        }
        if (place.turn == 0) sum = 0;
        sum += cuda_ops::SumOfSquares(x[i]);
        if (place.there && p_.sum != nullptr && blockIdx.x == 0)
          cuda_ops::Store(x[i], p_.sum + std::int64_t{place.token} * p_.elements + place.at);
        if (place.turn < last) continue;
        const float all = cuda_ops::SumLanes<32>(sum);
        if (lane_ == 0) Sums(place.token)[place.part] = all;
      }
    }
    ClearTail();
    wait();
    __syncthreads();
#pragma unroll 1
    for (int first = 0; first < steps; first += kTogether) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const Place place = At(first + i);
        if (place.token >= p_.m) break;
        if (!kept) {
          const float4* const stage = Stage(first + i);
          const float4 low = stage[0], high = stage[32];
          x[i][0] = low.x, x[i][1] = low.y, x[i][2] = low.z, x[i][3] = low.w;
          x[i][4] = high.x, x[i][5] = high.y, x[i][6] = high.z, x[i][7] = high.w;
        }
        Scale(place, x[i]);
      }
    }
    __syncthreads();
  }

 private:
  static constexpr int kWide = 8;  // elements of a lane's vector
  static constexpr int kTogether = kNormTogether;
  static_assert(Format::kBytes == 2);
  using Element = std::conditional_t<std::is_same_v<Format, Bf16>, __nv_bfloat16, __half>;

  // What a lane takes in a step: 8 elements from `at` on of a row, of one of its parts.
  struct Place {
    int token, part, turn, at;
    bool there;  // within the row; sums and shuffles take the others as zeros
  };

  __device__ __forceinline__ Place At(int step) const {
    const int round = step >> p_.turn_shift, unit = warp_ + round * warps_;
    Place place;
    place.turn = step - (round << p_.turn_shift);
    place.token = unit >> p_.norm_shift;
    place.part = unit - (place.token << p_.norm_shift);
    place.at = (((place.turn << p_.norm_shift) + place.part) * 32 + lane_) * kWide;
    place.there = place.token < p_.m && place.at < p_.elements;
    return place;
  }

  __device__ __forceinline__ void Load(const float* from, const Place& place,
                                       float (&to)[kWide]) const {
#pragma unroll
    for (int e = 0; e < kWide; ++e) to[e] = 0;
    if (place.there) cuda_ops::Load(from + std::int64_t{place.token} * p_.elements + place.at, to);
  }

  // A lane's own 16 bytes, and 16 more 512 behind them. Not there where a lane keeps all it takes.
  __device__ __forceinline__ float4* Stage(int step) const {
    return reinterpret_cast<float4*>(shared_ + p_.stage_at) + (step * warps_ + warp_) * 64 + lane_;
  }
  __device__ __forceinline__ float* Sums(int token) const {
    return reinterpret_cast<float*>(shared_ + p_.sums_at) + (token << p_.norm_shift);
  }
  __device__ __forceinline__ std::uint8_t* Row(int token) const {
    return shared_ + p_.tile_at + token * p_.tile_stride;
  }

  // The last k-block's bytes behind the end of a row.
  __device__ __forceinline__ void ClearTail() const {
    const int end = p_.elements * Format::kBytes, pieces = (-end & 127) / 16;
    if (pieces == 0) return;
    for (int token = warp_; token < p_.m; token += warps_) {
      if (lane_ < pieces)
        *reinterpret_cast<uint4*>(Row(token) + end + lane_ * 16) = make_uint4(0, 0, 0, 0);
    }
  }

  __device__ __forceinline__ void Scale(const Place& place, float (&x)[kWide]) const {
    const float part = lane_ < 1 << p_.norm_shift ? Sums(place.token)[lane_] : 0.0f;
    const float scale = cuda_ops::NormScale(cuda_ops::SumLanes<32>(part), p_.elements, p_.epsilon);
    float gamma[kWide] = {};
    if (place.there) cuda_ops::LoadStored(shared_ + p_.gamma_at, p_.gamma_type, place.at, gamma);
#pragma unroll
    for (int e = 0; e < kWide; ++e) x[e] = x[e] * scale * gamma[e];
    if (place.there) cuda_ops::Store(x, reinterpret_cast<Element*>(Row(place.token)) + place.at);
  }

  const FusedSkinnyParams& p_;
  std::uint8_t* const shared_;
  const int warp_, warps_, lane_;
};

}  // namespace culet::sm90
