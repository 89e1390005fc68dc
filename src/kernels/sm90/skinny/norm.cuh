// The norm in front of a product with few rows: it makes A, in shared memory.
//
// Every CTA computes all of A while its first weights are loading. A row is a few kilobytes, which
// lie in L2, and a kernel of its own would take as long as some products. Sums are added in the
// order of cuda_ops/fused_norm.cu whatever the size of this CTA, so the bits are equal.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda_ops/rms_norm.cuh"
#include "kernels/cuda_ops/values.cuh"
#include "kernels/sm90/skinny/fused.h"
#include "kernels/sm90/skinny/lane.cuh"
#include "sm90/format.h"

namespace culet::sm90 {

/// The part of warp `warp` of `warps` in the norm.
template <class Format>
class SkinnyNorm {
 public:
  __device__ __forceinline__ SkinnyNorm(const FusedSkinnyParams& p, std::uint8_t* shared, int warp,
                                        int warps, int lane)
      : p_(p),
        shared_(shared),
        base_(SharedAddress(shared)),
        warp_(warp),
        warps_(warps),
        lane_(lane) {}

  /// Calls copy(to, from) for each 16 bytes of gamma, which no kernel writes.
  template <class Copy>
  __device__ __forceinline__ void FetchGamma(const Copy& copy) const {
    const int bytes = p_.elements * (p_.gamma_type == DataType::kFloat32 ? 4 : 2);
#pragma unroll 1
    for (int at = (warp_ * 32 + lane_) * 16; at < bytes; at += warps_ * 512)
      copy(shared_ + p_.gamma_at + at, static_cast<const std::uint8_t*>(p_.gamma) + at);
  }

  /// Makes A from x and y, which turn() waits for. Gamma has arrived before. All threads of the CTA
  /// call it, and see all of A when it returns.
  template <class Turn>
  __device__ __forceinline__ void Make(const Turn& turn) const {
    ClearTail();
    if (p_.norm_steps > kKept) {
      MakeStaged(turn);
    } else {
      MakeKept<kKept>(turn, [&](const Place& place, float(&to)[kWide]) { LoadGamma(place, to); });
    }
    __syncthreads();
  }

  /// The same where each lane has one vector and rows have no tail. It loads gamma itself. On
  /// return all threads see A or, with `own_rows`, each warp sees the part that it multiplies.
  template <class Turn>
  __device__ __forceinline__ void MakeHeld(const Turn& turn) const {
    int own_rows = p_.own_rows;
    Pin(own_rows);
    MakeKept<1>(turn, [&](const Place& place, float(&to)[kWide]) {
      if (place.there) cuda_ops::LoadStored(p_.gamma, p_.gamma_type, place.at, to);
    });
    if (own_rows != 0) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

 private:
  static constexpr int kWide = 8;  // elements of a lane's vector
  static constexpr int kKept = kNormKept;
  static_assert(Format::kBytes == 2);
  using Element = std::conditional_t<std::is_same_v<Format, Bf16>, __nv_bfloat16, __half>;

  // A lane's work in a step: 8 elements of a row from `at` on, which belong to one part.
  struct Place {
    int token, part, turn, at;
    bool there;  // within the row; others count as zeros
  };

  // Where it is read and written. All of it is computed before the wait.
  struct Way {
    const float *x, *y;
    float* sum;
    std::uint32_t sums, row;  // in shared memory: the token's sums of parts, the place in A
  };

  // What turns a row's sum into its scale.
  struct Scaling {
    int parts, elements;
    float epsilon;
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

  __device__ __forceinline__ Way WayOf(const Place& place) const {
    const std::int64_t at = std::int64_t{place.token} * p_.elements + place.at;
    Way way = {p_.x + at, p_.y + at, p_.sum + at,
               base_ + p_.sums_at + (place.token << p_.norm_shift) * 4,
               base_ + p_.tile_at + place.token * p_.tile_stride + place.at * Format::kBytes};
    Pin(way.x), Pin(way.y), Pin(way.sums), Pin(way.row);
    return way;
  }

  __device__ __forceinline__ Scaling ScalingOf() const {
    Scaling s = {1 << p_.norm_shift, p_.elements, p_.epsilon};
    Pin(s.parts), Pin(s.elements), Pin(s.epsilon);
    return s;
  }

  // All vectors of a lane stay in registers.
  template <int kSteps, class Turn, class Gamma>
  __device__ __forceinline__ void MakeKept(const Turn& turn, const Gamma& read_gamma) const {
    Place places[kSteps];
    Way ways[kSteps];
    float gamma[kSteps][kWide] = {}, x[kSteps][kWide];
    const Scaling scaling = ScalingOf();
    const bool adds = p_.y != nullptr, stores = p_.sum != nullptr && blockIdx.x == 0;
    const int m = p_.m, last = (1 << p_.turn_shift) - 1;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      places[i] = At(i);
      ways[i] = WayOf(places[i]);
      read_gamma(places[i], gamma[i]);
    }
    turn();
    LoadSums(places, ways, adds, x);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
      if (places[i].token < m) AddSquares(places[i], ways[i], last, stores, x[i], sum);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
      if (places[i].token < m) Scale(places[i], ways[i], scaling, gamma[i], x[i]);
  }

  // The vectors go through shared memory.
  template <class Turn>
  __device__ __forceinline__ void MakeStaged(const Turn& turn) const {
    const int steps = p_.norm_steps, last = (1 << p_.turn_shift) - 1;
    const bool stores = p_.sum != nullptr && blockIdx.x == 0;
    float sum = 0;
#pragma unroll 1
    for (int first = 0; first < steps; first += kKept) {
      Place places[kKept];
      Way ways[kKept];
      float x[kKept][kWide];
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
        places[i] = At(first + i);
        ways[i] = WayOf(places[i]);
      }
      if (first == 0) turn();
      LoadSums(places, ways, p_.y != nullptr, x);
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
        if (places[i].token >= p_.m) break;
        float4* const stage = Stage(first + i);
        stage[0] = make_float4(x[i][0], x[i][1], x[i][2], x[i][3]);
        stage[32] = make_float4(x[i][4], x[i][5], x[i][6], x[i][7]);
        AddSquares(places[i], ways[i], last, stores, x[i], sum);
      }
    }
    __syncthreads();
    const Scaling scaling = ScalingOf();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const Place place = At(step);
      if (place.token >= p_.m) break;
      const float4* const stage = Stage(step);
      const float4 low = stage[0], high = stage[32];
      const float x[kWide] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      float gamma[kWide];
      LoadGamma(place, gamma);
      Scale(place, WayOf(place), scaling, gamma, x);
    }
  }

  __device__ __forceinline__ static void Load(const float* from, bool there, float (&to)[kWide]) {
#pragma unroll
    for (int e = 0; e < kWide; ++e) to[e] = 0;
    if (!there) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 v = LoadGlobal<float4>(from + 4 * half);
      to[4 * half] = v.x, to[4 * half + 1] = v.y, to[4 * half + 2] = v.z, to[4 * half + 3] = v.w;
    }
  }

  // x, or the sum of x and y. All loads are issued before any result is used.
  template <int kSteps>
  __device__ __forceinline__ static void LoadSums(const Place (&places)[kSteps],
                                                  const Way (&ways)[kSteps], bool adds,
                                                  float (&x)[kSteps][kWide]) {
    float y[kSteps][kWide];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) Load(ways[i].x, places[i].there, x[i]);
    if (!adds) return;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) Load(ways[i].y, places[i].there, y[i]);
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
      for (int e = 0; e < kWide; ++e) x[i][e] += y[i][e];
  }

  // Adds to the sum of the row's part, which is complete after the `last` turn.
  __device__ __forceinline__ void AddSquares(const Place& place, const Way& way, int last,
                                             bool stores, const float (&x)[kWide],
                                             float& sum) const {
    if (stores && place.there) cuda_ops::Store(x, way.sum);
    if (place.turn == 0) sum = 0;
    sum += cuda_ops::SumOfSquares(x);
    if (place.turn < last) return;
    const float all = cuda_ops::SumLanes<32>(sum);
    if (lane_ == 0) StoreShared(way.sums + place.part * 4, all);
  }

  __device__ __forceinline__ void LoadGamma(const Place& place, float (&to)[kWide]) const {
#pragma unroll
    for (int e = 0; e < kWide; ++e) to[e] = 0;
    if (place.there) cuda_ops::LoadStored(shared_ + p_.gamma_at, p_.gamma_type, place.at, to);
  }

  // The sum of the parts, with the bits of SumLanes<32> over them and zeros behind them.
  __device__ __forceinline__ void Scale(const Place& place, const Way& way, const Scaling& by,
                                        const float (&gamma)[kWide],
                                        const float (&x)[kWide]) const {
    float sum = LoadShared<float>(way.sums + (lane_ & (by.parts - 1)) * 4);
#pragma unroll 1
    for (int offset = by.parts / 2; offset > 0; offset /= 2)
      sum += __shfl_xor_sync(cuda_ops::kAllLanes, sum, offset);
    const float scale = cuda_ops::NormScale(sum, by.elements, by.epsilon);
    cuda_ops::Pack<Element, kWide> pack;
#pragma unroll
    for (int e = 0; e < kWide; ++e) cuda_ops::Round(x[e] * scale * gamma[e], &pack.elements[e]);
    if (place.there) StoreShared(way.row, *reinterpret_cast<const uint4*>(&pack));
  }

  // A lane's 16 bytes, and 16 more, 512 bytes further.
  __device__ __forceinline__ float4* Stage(int step) const {
    return reinterpret_cast<float4*>(shared_ + p_.stage_at) + (step * warps_ + warp_) * 64 + lane_;
  }

  // The bytes of the last k-block behind the end of a row.
  __device__ __forceinline__ void ClearTail() const {
    const int end = p_.elements * Format::kBytes, pieces = (-end & 127) / 16;
    if (pieces == 0) return;
    for (int token = warp_; token < p_.m; token += warps_) {
      if (lane_ < pieces)
        StoreShared(base_ + p_.tile_at + token * p_.tile_stride + end + lane_ * 16,
                    make_uint4(0, 0, 0, 0));
    }
  }

  const FusedSkinnyParams& p_;
  std::uint8_t* const shared_;
  const std::uint32_t base_;
  const int warp_, warps_, lane_;
};

}  // namespace culet::sm90
