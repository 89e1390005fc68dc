// What a warp does in attention on tensor cores: 16 queries, or 16 twice, against keys and values
// in shared memory. The softmax stays in registers. Sums are FP32; queries, keys, values and
// weights are of the cache's type.
#pragma once

#include "kernels/cuda_ops/attention_keys.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/shared_rows.cuh"

namespace culet::cuda_ops {

/// The row of a key that is not the block's; -1 is one outside the cache.
inline constexpr int kBeyond = -2;

/// Bytes of a row of kDim elements of a query in shared memory: 16 more than the elements, an odd
/// number of 16 bytes, so that eight rows of a matrix lie in different banks.
template <int kDim>
inline constexpr int kSharedRow = kDim * 2 + 16;

/// The type in which elements of a cache are multiplied: float16 for codes, which holds all their
/// values.
template <class Cache>
using MathOf = std::conditional_t<kAreCodes<Cache>, __half, Cache>;

/// Stores eight elements of a query, from dimension `dim` on, in its row of shared memory. Beside
/// codes the order in 16 dimensions is that of WarpAttention::MultiplyCodes: of each four the first
/// two, then of each four the last two.
template <bool kOfCodes>
__device__ __forceinline__ void StoreQuery(char* row, int dim, uint4 x) {
  if constexpr (kOfCodes) {
    char* const to = row + dim / 16 * 32 + dim % 16;
    *reinterpret_cast<uint2*>(to) = make_uint2(x.x, x.z);
    *reinterpret_cast<uint2*>(to + 16) = make_uint2(x.y, x.w);
  } else {
    *reinterpret_cast<uint4*>(row + dim * 2) = x;
  }
}

/// Two values rounded to T in one register, the first in its low half.
template <class T>
__device__ __forceinline__ std::uint32_t PackPair(float x, float y) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(x, y);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

/// Eight values from dimension `at` of a query on, rounded to T; 0 beyond the head.
template <class T>
__device__ __forceinline__ uint4 LoadQuery(const AttentionArgs& args, std::int64_t element,
                                           int at) {
  if (at >= args.params.head_dim) return make_uint4(0, 0, 0, 0);
  float q[8];
  if (args.q_type == DataType::kFloat32) {
    Load(static_cast<const float*>(args.q) + element + at, q);
  } else {
    Load(static_cast<const __nv_bfloat16*>(args.q) + element + at, q);
  }
  return make_uint4(PackPair<T>(q[0], q[1]), PackPair<T>(q[2], q[3]), PackPair<T>(q[4], q[5]),
                    PackPair<T>(q[6], q[7]));
}

/// Two neighbours of a row of out.
__device__ __forceinline__ void StorePair(float x, float y, const AttentionArgs& args,
                                          std::int64_t element) {
  const float pair[2] = {x, y};
  if (args.out_type == DataType::kFloat32) {
    Store(pair, static_cast<float*>(args.out) + element);
  } else {
    Store(pair, static_cast<__nv_bfloat16*>(args.out) + element);
  }
}

/// kBlocks times 16 queries. A lane holds rows lane / 4 and lane / 4 + 8 of each 16: of the scores
/// and of the output columns 2 (lane % 4) and the next of every eight. Of codes (MultiplyCodes,
/// AccumulateCodes) columns of output blocks 2 i and 2 i + 1 are every other dimension of 16. Keys
/// and values lie in Rows, codes in CodeRows.
template <class T, int kDim, int kBlocks, int kKeys>
struct WarpAttention {
  using Rows = SharedRows<2 * kDim>;
  using CodeRows = SharedRows<kDim>;
  using Scores = float[kBlocks][kKeys / 8][4];

  float out[kBlocks][kDim / 8][4] = {};
  float most[kBlocks][2], sum[kBlocks][2] = {};

  __device__ WarpAttention() {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) most[block][0] = most[block][1] = kNoKey;
  }

  /// scores = queries times keys. `queries(block, step, a)` gives 16 dimensions of 16 queries.
  template <class Queries>
  __device__ __forceinline__ static void Multiply(Queries&& queries, std::uint32_t keys,
                                                  Scores& scores) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto at =
        keys + static_cast<std::uint32_t>(Rows::Offset(lane % 8 + lane / 16 * 8, lane / 8 % 2));
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[block][n][i] = 0;
      }
    }
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      std::uint32_t a[kBlocks][4];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) queries(block, step, a[block]);
#pragma unroll
      for (int pair = 0; pair < kKeys / 16; ++pair) {
        std::uint32_t b[4];
        LoadMatrices(Rows::Below(Rows::Behind(at, step * 32), pair * 16), b);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          MultiplyAdd<T>(scores[block][2 * pair], a[block], b[0], b[1]);
          MultiplyAdd<T>(scores[block][2 * pair + 1], a[block], b[2], b[3]);
        }
      }
    }
  }

  /// As Multiply, for E4M3 codes. A lane has four contiguous dimensions of each 16, and queries are
  /// stored in that order (StoreQuery).
  template <class Queries>
  __device__ __forceinline__ static void MultiplyCodes(Queries&& queries, std::uint32_t keys,
                                                       Scores& scores) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto at =
        keys + static_cast<std::uint32_t>(CodeRows::Offset(lane % 8 + lane / 16 * 8, lane / 8 % 2));
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[block][n][i] = 0;
      }
    }
#pragma unroll
    for (int step = 0; step < kDim / 32; ++step) {
      std::uint32_t a[kBlocks][2][4];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        queries(block, 2 * step, a[block][0]);
        queries(block, 2 * step + 1, a[block][1]);
      }
#pragma unroll
      for (int pair = 0; pair < kKeys / 16; ++pair) {
        std::uint32_t b[4];  // eight keys, 16 dimensions; the next 16; the next eight keys
        LoadMatrices(CodeRows::Below(CodeRows::Behind(at, step * 32), pair * 16), b);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t first = PairOfCodes(b[i]), second = PairOfCodes(b[i] >> 16);
#pragma unroll
          for (int block = 0; block < kBlocks; ++block) {
            MultiplyAdd<T>(scores[block][2 * pair + i / 2], a[block][i % 2], first, second);
          }
        }
      }
    }
  }

  /// Replaces scores, which `scale` is not in yet, by capped ones times log2 e where there is a
  /// cap. Returns the scale that they have now.
  __device__ __forceinline__ static float Cap(Scores& scores, float scale, float log2_cap) {
    if (!(log2_cap > 0)) return scale;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (float& score : scores[block][n]) score = Capped(score * scale, log2_cap);
      }
    }
    return 1;
  }

  /// Turns scores into weights and rescales earlier sums to the new maximum. `scale` includes log2
  /// e. A masked score is kNoKey.
  __device__ __forceinline__ void Softmax(Scores& scores, float scale) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float highest = most[block][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          highest =
              fmaxf(highest, fmaxf(scores[block][n][2 * half], scores[block][n][2 * half + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 2));
        // Without a key yet there is nothing to scale, and no difference of infinities.
        const float base = highest == kNoKey ? 0.0f : highest * scale;
        const float rescale = FastExp2(fmaf(most[block][half], scale, -base));
        most[block][half] = highest;
        float total = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = scores[block][n][2 * half + i];
            score = FastExp2(fmaf(score, scale, -base));
            total += score;
          }
        }
        sum[block][half] = fmaf(sum[block][half], rescale, total);
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          out[block][n][2 * half] *= rescale;
          out[block][n][2 * half + 1] *= rescale;
        }
      }
    }
  }

  /// The weights of 16 keys as T.
  __device__ __forceinline__ static void PackWeights(const Scores& weights, int step,
                                                     std::uint32_t (&a)[kBlocks][4]) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&part)[4] = weights[block][2 * step + i / 2];
        a[block][i] = PackPair<T>(part[i % 2 * 2], part[i % 2 * 2 + 1]);
      }
    }
  }

  /// out += weights times values.
  __device__ __forceinline__ void Accumulate(const Scores& weights, std::uint32_t values) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto at = values + static_cast<std::uint32_t>(Rows::Offset(lane % 16, lane / 16));
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      std::uint32_t a[kBlocks][4];
      PackWeights(weights, step, a);
#pragma unroll
      for (int pair = 0; pair < kDim / 16; ++pair) {
        std::uint32_t b[4];
        LoadTransposed(Rows::Below(Rows::Behind(at, pair * 32), step * 16), b);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          MultiplyAdd<T>(out[block][2 * pair], a[block], b[0], b[1]);
          MultiplyAdd<T>(out[block][2 * pair + 1], a[block], b[2], b[3]);
        }
      }
    }
  }

  /// As above, for values that are codes.
  __device__ __forceinline__ void AccumulateCodes(const Scores& weights, std::uint32_t values) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto at = values + static_cast<std::uint32_t>(CodeRows::Offset(lane % 16, lane / 16));
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      std::uint32_t a[kBlocks][4];
      PackWeights(weights, step, a);
#pragma unroll
      for (int part = 0; part < kDim / 32; ++part) {
        // Two neighbouring dimensions of two keys: of eight keys, the next eight; the next 16
        // dimensions.
        std::uint32_t b[4];
        LoadTransposed(CodeRows::Below(CodeRows::Behind(at, part * 32), step * 16), b);
#pragma unroll
        for (int i = 0; i < 4; ++i) b[i] = __byte_perm(b[i], 0, 0x3120);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            const std::uint32_t first = PairOfCodes(b[2 * i] >> 16 * odd);
            const std::uint32_t second = PairOfCodes(b[2 * i + 1] >> 16 * odd);
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) {
              MultiplyAdd<T>(out[block][4 * part + 2 * i + odd], a[block], first, second);
            }
          }
        }
      }
    }
  }

  /// Reduces the sums of rows over their lanes. Maxima become powers of two.
  __device__ __forceinline__ void Finish(float scale) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& total = sum[block][half];
        total += __shfl_xor_sync(kAllLanes, total, 1);
        total += __shfl_xor_sync(kAllLanes, total, 2);
        if (most[block][half] != kNoKey) most[block][half] *= scale;
      }
    }
  }
};

}  // namespace culet::cuda_ops
