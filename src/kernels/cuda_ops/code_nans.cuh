// Rows of a weight that have a code of NaN, which tensor cores are not given as such.
#pragma once

#include <cstdint>

#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

/// Of a lane's rows r and r + 8 of each sub-tile, for Codes that have kNans.
template <class Codes, int kSubTiles, bool kNans = Codes::kNans>
class NanRows {
 public:
  __device__ __forceinline__ void Look(int, std::uint32_t, std::uint32_t) {}
  template <int kOctets>
  __device__ __forceinline__ void Spoil(float (&)[kSubTiles][kOctets][4]) const {}
};

template <class Codes, int kSubTiles>
class NanRows<Codes, kSubTiles, true> {
 public:
  __device__ __forceinline__ void Look(int sub_tile, std::uint32_t upper, std::uint32_t lower) {
    found_[sub_tile][0] |= Codes::NansOf(upper);
    found_[sub_tile][1] |= Codes::NansOf(lower);
  }
  /// Makes the sums of these rows NaN. All lanes of the warp take part.
  template <int kOctets>
  __device__ __forceinline__ void Spoil(float (&sums)[kSubTiles][kOctets][4]) const {
#pragma unroll
    for (int s = 0; s < kSubTiles; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Four lanes share a row.
        std::uint32_t found = found_[s][half];
        found |= __shfl_xor_sync(kAllLanes, found, 1);
        found |= __shfl_xor_sync(kAllLanes, found, 2);
        if ((found & Codes::kNanBits) == 0) continue;
#pragma unroll
        for (int t = 0; t < kOctets; ++t) {
          sums[s][t][2 * half] = sums[s][t][2 * half + 1] = NotANumber();
        }
      }
    }
  }

 private:
  std::uint32_t found_[kSubTiles][2] = {};
};

}  // namespace culet::cuda_ops
