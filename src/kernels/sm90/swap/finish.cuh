// Finishes a small-M kernel: reduces sums over the cluster, applies the epilogue, stores D.
#pragma once

#include <cstdint>

#include "culet/layout/tma_swizzle.h"
#include "kernels/sm90/product/output.cuh"
#include "kernels/sm90/product/row_scale.cuh"
#include "kernels/sm90/product/silu.cuh"
#include "kernels/sm90/swap/config.cuh"
#include "sm90/epilogue.cuh"
#include "sm90/fragment.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// Rounds one warp's sums of a group of 8 tokens (row l/4, tokens 2(l%4) and +1, then row l/4 + 8)
/// and puts them into its warpgroup's BF16 tile: a row of 64 columns (128 bytes) a token, the
/// 16-byte chunks of a row XORed with the token, so that stmatrix and the copy out have no bank
/// conflicts.
__device__ __forceinline__ void SwapPutBf16(uint32_t tile, float4 v, int group, int warp,
                                            int lane) {
  const uint32_t token = group * 8 + (lane & 7), chunk = (warp & 3) * 2 + ((lane >> 3) & 1);
  StoreMatrix2Transposed(tile + TmaOffset128(token, chunk * 16), PackBf16(v.x, v.y),
                         PackBf16(v.z, v.w));
}

/// A warpgroup copies its groups rank, rank + splits, ... of the BF16 tile to D.
__device__ __forceinline__ void SwapCopyOut(const SwapParams& p, const uint8_t* tile, int groups,
                                            int rank, int splits, int token0, int column0,
                                            int thread) {
  // 8 tokens x 8 chunks a group: the 128 threads take two groups at a time.
  const int chunk = thread & 7, token_in_group = (thread >> 3) & 7;
  const int column = column0 + 8 * chunk;
  const bool wide =
      ((reinterpret_cast<uint64_t>(p.d) | (p.ldd * 2)) & 15) == 0 && column + 8 <= p.n;
  const int first = rank + (thread >> 6) * splits;
  const uint8_t* from = tile + TmaOffset128(first * 8 + token_in_group, chunk * 16);
  int token = token0 + first * 8 + token_in_group;
  uint16_t* to = static_cast<uint16_t*>(p.d) + token * p.ldd + column;
  const int64_t step = 2 * splits * 8 * p.ldd;
  // Keep this short: code that runs once is fetched from memory, 16 instructions at a time.
#pragma unroll 1
  for (int group = first; group < groups && token < p.m; group += 2 * splits) {
    const uint4 data = *reinterpret_cast<const uint4*>(from);
    if (wide) {
      *reinterpret_cast<uint4*>(to) = data;
    } else {
      const uint16_t* const narrow = reinterpret_cast<const uint16_t*>(from);
#pragma unroll 1
      for (int i = 0; i < 8 && column + i < p.n; ++i) to[i] = narrow[i];
    }
    from += 2 * splits * 1024, to += step, token += 2 * splits * 8;
  }
}

/// A warp's sums as F32 to D, those of the groups of 8 tokens in `own`: eight lanes write 32 bytes
/// side by side. `column` is that of the warp's first row of weights.
template <class C>
__device__ __forceinline__ void SwapStoreF32(const SwapParams& p,
                                             const float (&sum)[C::kOwnTokens / 2], uint32_t own,
                                             int token0, int column, int lane) {
  column += lane / 4;
#pragma unroll
  for (int j = 0; j < C::kGroups; ++j) {
    if ((own >> j & 1) == 0) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // (row, token), (row, token + 1), then 8 rows on
      const int token = token0 + j * 8 + 2 * (lane & 3) + i % 2, at = column + i / 2 * 8;
      if (token < p.m && at < p.n)
        static_cast<float*>(p.d)[token * p.ldd + at] = sum[4 * j + i] * p.epilogue.alpha;
    }
  }
}

/// Where a general epilogue keeps the sum of a token and one of its warpgroup's 64 columns, in
/// floats. The 32-byte pieces of a token's columns are XORed with half the token, so that the lanes
/// of a fragment (tokens 2(l%4) and +1, column l/4) meet no bank twice. Written by hand: of the
/// layout's own arithmetic the compiler makes 1 % more code, as it does not see which bits are
/// free.
CULET_HOST_DEVICE constexpr int SwapTileIndex(int token, int column) {
  return token * 64 + (column ^ (token >> 1 & 3) << 3);
}
static_assert([] {
  for (int i = 0; i < 8 * 64; ++i) {
    using Layout = SmemLayoutV2<8, 64, 8, 64, Swizzle<2, 3, 4>>;
    if (SwapTileIndex(i / 64, i % 64) != Layout::apply(i / 64, i % 64)) return false;
  }
  return true;
}());

/// A thread's factors: alpha and the scales of its rows and tokens.
template <class C>
struct SwapFactors {
  const float* tokens;  ///< of its first two tokens
  float2 rows;

  __device__ __forceinline__ SwapFactors(const SwapShared<C>& shared, int token_group,
                                         int row_group, int warp, int lane)
      : tokens(shared.token_factors() + token_group * C::kOwnTokens + 2 * (lane & 3)) {
    const float* const own = shared.row_factors() + row_group * 64 + (warp & 3) * 16 + lane / 4;
    rows = make_float2(own[0], own[8]);
  }
  /// Of group `j` of 8 tokens.
  __device__ __forceinline__ float4 operator()(int j, float4 v) const {
    const float2 t = *reinterpret_cast<const float2*>(tokens + j * 8);
    return make_float4(v.x * t.x * rows.x, v.y * t.y * rows.x, v.z * t.x * rows.y,
                       v.w * t.y * rows.y);
  }
};

/// Puts a warp's sums of the groups of 8 tokens in `own`, scaled, into its warpgroup's FP32 tile.
template <class C>
__device__ __forceinline__ void SwapPutScaled(const SwapFactors<C>& factors, float* tile,
                                              const float (&sum)[C::kOwnTokens / 2], uint32_t own,
                                              int warp, int lane) {
  const int column = (warp & 3) * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < C::kGroups; ++j) {
    if ((own >> j & 1) == 0) continue;
    const int token = j * 8 + 2 * (lane & 3);
    const float4 v =
        factors(j, make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]));
    tile[SwapTileIndex(token, column)] = v.x;
    tile[SwapTileIndex(token + 1, column)] = v.y;
    tile[SwapTileIndex(token, column + 8)] = v.z;
    tile[SwapTileIndex(token + 1, column + 8)] = v.w;
  }
}

/// A warpgroup adds C and the bias to its groups rank, rank + splits, ... of the FP32 tile, rounds
/// and stores them. An element of C is read by the thread that writes D's, so they may be the same.
template <class C>
__device__ __forceinline__ void SwapStoreGeneral(const SwapParams& p, const SwapShared<C>& shared,
                                                 const float* tile, int groups, int rank,
                                                 int splits, int token0, int row0, int token_group,
                                                 int row_group, int thread) {
  const EpilogueParams& e = p.epilogue;
  const int in_row = row_group * 64 + 8 * (thread & 7), column = row0 + in_row;
  if (column >= p.n) return;
  const int count = min(8, p.n - column);
  const bool wide_d = count == 8 && IsWide(p.d, e.d_type, p.ldd);
  const bool wide_c = count == 8 && IsWide(e.c, e.c_type, e.ldc);
  float bias[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) bias[i] = shared.row_bias()[in_row + i];
    // 8 tokens x 8 pieces a group: the 128 threads take two groups at a time.
#pragma unroll 1
  for (int group = rank + (thread >> 6) * splits; group < groups; group += 2 * splits) {
    const int in_tile = group * 8 + ((thread >> 3) & 7), token = token0 + in_tile;
    if (token >= p.m) return;
    const float* const from = tile + SwapTileIndex(in_tile, 8 * (thread & 7));
    const float token_bias = shared.token_bias()[token_group * C::kOwnTokens + in_tile];
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = from[i] + (bias[i] + token_bias);
    if (e.beta != 0.0f) {
      float c[8];
      LoadEight(e.c, e.c_type, token * e.ldc + column, count, wide_c, c);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = fmaf(e.beta, c[i], v[i]);
    }
    StoreEight(p.d, e.d_type, token * p.ldd + column, count, wide_d, v);
  }
}

/// Pairs a warp's sums of the groups of 8 tokens in `own`: a lane's two rows of weights, eight
/// apart, are gate and up of one column of D. Before that everything that EpilogueParams says. Of a
/// group's four sums the first two become a column of two tokens. `row`: the warp's first, of the
/// CTA's.
template <class C>
__device__ __forceinline__ void SwapGate(const SwapParams& p, const SwapShared<C>& shared,
                                         float (&sum)[C::kOwnTokens / 2], uint32_t own, int token0,
                                         int in_token0, int row0, int row, int lane) {
  const EpilogueParams& e = p.epilogue;
  row += lane / 4;
  if (ChangesSums(e)) {
    const float* const rows = shared.row_factors() + row;
    const float* const row_bias = shared.row_bias() + row;
#pragma unroll
    for (int j = 0; j < C::kGroups; ++j) {
      if ((own >> j & 1) == 0) continue;
      const int in_tile = in_token0 + j * 8 + 2 * (lane & 3);
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // (row, token), (row, token + 1), then 8 rows on
        const int t = in_tile + i % 2, column = row0 + row + i / 2 * 8;
        float& v = sum[4 * j + i];
        v = v * shared.token_factors()[t] * rows[i / 2 * 8] +
            (row_bias[i / 2 * 8] + shared.token_bias()[t]);
        if (e.beta != 0.0f && token0 + t < p.m && column < p.n)
          v = fmaf(e.beta, LoadOutput(e.c, e.c_type, (token0 + t) * e.ldc + column), v);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < C::kGroups; ++j) {
    if ((own >> j & 1) == 0) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[4 * j + i] = Silu(sum[4 * j + i]) * sum[4 * j + 2 + i];
  }
}

/// Stores them, eight lanes columns side by side. `token0`: the warpgroup's first, `column`: the
/// warp's first of D.
template <class C>
__device__ __forceinline__ void SwapStoreGated(const SwapParams& p,
                                               const float (&sum)[C::kOwnTokens / 2], uint32_t own,
                                               int token0, int column, int lane) {
  column += lane / 4;
#pragma unroll
  for (int j = 0; j < C::kGroups; ++j) {
    if ((own >> j & 1) == 0) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = token0 + j * 8 + 2 * (lane & 3) + i;
      if (token < p.m && column < p.n / 2)
        StoreOutput(p.d, p.epilogue.d_type, token * p.ldd + column, sum[4 * j + i]);
    }
  }
}

/// Quantises and stores them. The 128 columns that share a scale are those of kSharers CTAs of the
/// cluster, 32 of each and 8 of a warp: each warp tells all of them the largest magnitudes of its
/// tokens. `rank`: this CTA's among those that split K, of which `splits` lie side by side.
template <class C>
__device__ __forceinline__ void SwapStoreQuantised(const SwapParams& p, const SwapShared<C>& shared,
                                                   float (&sum)[C::kOwnTokens / 2], uint32_t own,
                                                   int rank, int splits, int sharer, int token0,
                                                   int in_token0, int column, int warp, int lane) {
  constexpr int kSources = 4 * C::kSharers;
  static_assert(kSources == 16, "two of them for each of the lanes that share tokens");
  const int in_tile = in_token0 + 2 * (lane & 3);
  const auto at = [&](int source, int j) {
    return shared.largest + source * C::kTokens + in_tile + j * 8;
  };
  // Lanes 4 i to 4 i + 3 write to sharer i: each has two tokens of all of the warp's columns.
  const int to = rank + lane / 4 % C::kSharers * splits;
  const uint32_t full = MapToRank(SharedAddress(shared.largest_full), to);
#pragma unroll
  for (int j = 0; j < C::kGroups; ++j) {
    if ((own >> j & 1) == 0) continue;
    float most[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) most[i] = LargestOfLanes<4, 16>(fabsf(sum[4 * j + i]));
    if (lane < 4 * C::kSharers)
      StoreAsync(MapToRank(SharedAddress(at(sharer * 4 + warp % 4, j)), to),
                 make_float2(most[0], most[1]), full);
  }
  if (threadIdx.x % 128 == 0)
    BarrierArriveExpect(shared.largest_full, kSources * __popc(own) * 8 * 4);
  BarrierWaitCluster(shared.largest_full, 0);
  const int first = column + lane / 4;
#pragma unroll
  for (int j = 0; j < C::kGroups; ++j) {
    if ((own >> j & 1) == 0) continue;
    const float2 a = *reinterpret_cast<const float2*>(at(lane / 4 * 2, j));
    const float2 b = *reinterpret_cast<const float2*>(at(lane / 4 * 2 + 1, j));
    const float most[2] = {LargerMagnitude(a.x, b.x), LargerMagnitude(a.y, b.y)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bool lifts;
      const RowScale scale = ScaleOfLargest(LargestOfLanes<4, 16>(most[i]), lifts);
      const float lifted = lifts ? sum[4 * j + i] * 0x1p100f : sum[4 * j + i];
      const int64_t token = token0 + in_tile + j * 8 + i;
      if (token >= p.m) continue;
      static_cast<uint8_t*>(p.d)[token * p.ldd + first] =
          static_cast<uint8_t>(PackE4m3(lifted * scale.inverse, 0.0f));
      if (sharer == 0 && warp % 4 == 0 && lane < 4)
        p.epilogue.d_scale[token * p.epilogue.d_scale_row +
                           int64_t{column / 128} * p.epilogue.d_scale_block] = scale.scale;
    }
  }
}

/// Sends four sums with their pairs swapped, and adds them on arrival. Unswapped, the vector's
/// register alignment would make promotion read each product and its sum from one register bank.
__device__ __forceinline__ float4 PackSums(const float* sum) {
  return make_float4(sum[1], sum[0], sum[3], sum[2]);
}
__device__ __forceinline__ void AddSums(float* sum, float4 packed) {
  sum[1] += packed.x, sum[0] += packed.y, sum[3] += packed.z, sum[2] += packed.w;
}

/// Adds the sums of two warpgroups that took alternate k-blocks: warpgroup t gets the total of the
/// t-th half of the tokens.
template <class C>
__device__ __forceinline__ void SwapSumTurns(const SwapShared<C>& shared,
                                             const float (&sum)[C::kRegs],
                                             float (&total)[C::kOwnTokens / 2], int turn) {
  constexpr int kHalf = C::kOwnTokens / 2, kFours = kHalf / 4;
  NamedSync(1, C::kConsumers);  // all have left the stages
  float4* const to = reinterpret_cast<float4*>(shared.stages) + threadIdx.x;
  const float4* const from = reinterpret_cast<const float4*>(shared.stages) + (threadIdx.x ^ 128);
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    if (t != turn) continue;
#pragma unroll
    for (int j = 0; j < kFours; ++j) to[j * 256] = PackSums(&sum[(1 - t) * kHalf + 4 * j]);
#pragma unroll
    for (int i = 0; i < kHalf; ++i) total[i] = sum[t * kHalf + i];
  }
  NamedSync(1, C::kConsumers);
#pragma unroll
  for (int j = 0; j < kFours; ++j) AddSums(&total[4 * j], from[j * 256]);
}

/// Adds the sums over the cluster, rounds and stores them.
template <class C>
__device__ __forceinline__ void SwapFinish(const SwapParams& p, const SwapShared<C>& shared,
                                           float (&sum)[C::kOwnTokens / 2], int rank, int splits,
                                           int sharer, const Tile& tile_of_d, int warp, int lane) {
  const int token0 = tile_of_d.row, row0 = tile_of_d.column;
  const int warpgroup = warp / 4, token_group = warpgroup / C::kRowGroups;
  // A warpgroup's groups of 8 tokens go round-robin to the CTAs of the cluster for summing.
  const int own_token0 = token0 + token_group * C::kOwnTokens;
  const int groups = min(C::kGroups, max(0, (p.m - own_token0 + 7) / 8));
  // Bit j: this CTA sums and stores group j.
  uint32_t own = groups == 32 ? ~0u : (1u << groups) - 1;
  if (splits > 1) {
    // Group j goes to CTA j % splits, from CTA r into slot (r, the owner left out; j / splits).
    const int slots = (C::kGroups + splits - 1) / splits;
    const uint32_t mine = SharedAddress(shared.exchange) + threadIdx.x * 16;
    const uint32_t full = SharedAddress(shared.exchange_full);
    int owner = 0, slot = 0;
#pragma unroll
    for (int j = 0; j < C::kGroups; ++j) {
      if (j < groups && owner != rank) {
        own &= ~(1u << j);
        const int from = rank < owner ? rank : rank - 1;
        const uint32_t to = mine + (from * slots + slot) * (C::kConsumers * 16);
        const int peer = owner + sharer * splits;
        StoreAsync(MapToRank(to, peer), PackSums(&sum[4 * j]), MapToRank(full, peer));
      }
      if (++owner == splits) owner = 0, ++slot;
    }
    // The first token group has the most groups: without one of those this CTA sums nothing.
    if (rank >= (p.m - token0 + 7) / 8) return;
    if (threadIdx.x % 128 == 0)
      BarrierArriveExpect(shared.exchange_full, (splits - 1) * __popc(own) * 128 * 16);
    BarrierWaitCluster(shared.exchange_full, 0);
    // The order of the sum depends on the ranks alone.
#pragma unroll 1
    for (int from = 0; from < splits - 1; ++from) {
      const uint8_t* at = shared.exchange + (from * slots * C::kConsumers + threadIdx.x) * 16;
#pragma unroll
      for (int j = 0; j < C::kGroups; ++j) {
        if ((own >> j & 1) == 0) continue;
        AddSums(&sum[4 * j], *reinterpret_cast<const float4*>(at));
        at += C::kConsumers * 16;
      }
    }
  }
  const int row_group = warpgroup % C::kRowGroups;
  if constexpr (C::kGated) {
    if constexpr (!C::kScaled) BarrierWait(&shared.scales_full[0], 0);  // SwapBringFactors
    const int in_token0 = token_group * C::kOwnTokens, row = row_group * 64 + (warp & 3) * 16;
    SwapGate<C>(p, shared, sum, own, token0, in_token0, row0, row, lane);
    if constexpr (C::kQuantises)
      SwapStoreQuantised<C>(p, shared, sum, own, rank, splits, sharer, token0, in_token0,
                            (row0 + row) / 2, warp, lane);
    else
      SwapStoreGated<C>(p, sum, own, own_token0, (row0 + row) / 2, lane);
    return;
  }
  // A general epilogue often has nothing to add, and for BF16 and F16 only rounds. The plain path
  // is then faster: 16 bits per sum through shared memory, not 32.
  constexpr bool kMayRound = C::kGeneral && C::Policy::kInfo.element_bytes == 2;
  constexpr bool kMayScale = C::kGeneral && !kMayRound;
  if constexpr (C::kGeneral) {
    const bool plain = kMayRound ? OnlyRoundsToBf16(p.epilogue) : OnlyScalesToBf16(p.epilogue);
    // SwapBringFactors
    if (!C::kScaled && (kMayScale || !plain)) BarrierWait(&shared.scales_full[0], 0);
    if (!plain) {
      NamedSync(1, C::kConsumers);  // the ring becomes the tile, as below
      float* const tile = reinterpret_cast<float*>(shared.stages) + warpgroup * C::kOwnTokens * 64;
      SwapPutScaled<C>(SwapFactors<C>(shared, token_group, row_group, warp, lane), tile, sum, own,
                       warp, lane);
      NamedSync(2 + warpgroup, 128);
      SwapStoreGeneral<C>(p, shared, tile, groups, rank, splits, own_token0, row0, token_group,
                          row_group, threadIdx.x % 128);
      return;
    }
  }
  if constexpr (!C::kGeneral && C::kOutput == OutputType::kF32) {
    SwapStoreF32<C>(p, sum, own, own_token0, row0 + row_group * 64 + (warp & 3) * 16, lane);
    return;
  }
  // All loads have been consumed once every consumer is here: the ring becomes the output tile.
  NamedSync(1, C::kConsumers);
  uint8_t* const tile = shared.stages + warpgroup * C::kOwnTokens * 128;
  const auto factors = [&] {
    if constexpr (kMayScale)
      return SwapFactors<C>(shared, token_group, row_group, warp, lane);
    else
      return [x = p.epilogue.alpha](int, float4 v) {
        return make_float4(v.x * x, v.y * x, v.z * x, v.w * x);
      };
  }();
  const auto stage_group = [&](int j) {
    const float4 v = make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
    SwapPutBf16(SharedAddress(tile), factors(j, v), j, warp, lane);
  };
  if (splits == 1) {
    // Branch-free; groups past the last token are not copied out.
#pragma unroll
    for (int j = 0; j < C::kGroups; ++j) stage_group(j);
  } else {
#pragma unroll
    for (int j = 0; j < C::kGroups; ++j)
      if (own >> j & 1) stage_group(j);
  }
  NamedSync(2 + warpgroup, 128);
  SwapCopyOut(p, tile, groups, rank, splits, own_token0, row0 + row_group * 64, threadIdx.x % 128);
}

}  // namespace culet::sm90
