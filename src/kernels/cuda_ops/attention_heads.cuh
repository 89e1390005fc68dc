// The heads of a single row, computed by a block of attention from the product of q, k and v: its
// queries, and in the block with the row's last keys also the row's own key and value, which it
// writes to the cache and does not read back.
#pragma once

#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/heads.cuh"

namespace culet::cuda_ops {

/// Arguments of decoding, with or without the computation of heads.
template <bool kMakesHeads>
struct DecodeArgs {
  AttentionArgs attention;
};
template <>
struct DecodeArgs<true> {
  AttentionArgs attention;
  FusedHeadsArgs heads;
};

/// The key and value of the block's row, if the block makes them.
struct OwnRow {
  int key = -1;            ///< the key's number, where scores take it from here; -1: nowhere
  std::int64_t slot = -1;  ///< of the cache; -1: not stored
  bool made = false;

  OwnRow() = default;
  /// `last`: of the row's blocks this one has the last keys.
  __device__ OwnRow(const DecodeArgs<true>& given, const KeyRange& range, std::int64_t row,
                    bool last) {
    if (!last) return;
    made = true;
    const std::int64_t at = given.heads.key_slots[row];
    if (at >= 0 && at < given.heads.cache_rows) slot = at;
    // Padding rows store nothing but see their own key. A slot other than the position's leaves the
    // position's memory unchanged.
    const bool visible = range.position >= range.first && range.position < range.last;
    if (visible && (at < 0 || at == range.RowOf(given.attention, range.position))) {
      key = static_cast<int>(range.position);
    }
  }
};

/// Sines, then cosines, of the row's position, as thread `thread` of `threads` takes part.
__device__ __forceinline__ void MakeTurns(const FusedHeadsArgs& args, std::int64_t row,
                                          float* sines, int thread, int threads) {
  float* const cosines = sines + args.rope.half;
  const double position = args.rope.positions[row];
#pragma unroll 1
  for (int i = thread; i < args.rope.half; i += threads) {
    float s, c;
    SineCosine(position * args.rope.turns[i], &s, &c);
    sines[i] = s * args.rope.attention_factor;
    cosines[i] = c * args.rope.attention_factor;
  }
}

/// The gammas of q, then of k, if there are any; called by all threads like the function above.
__device__ __forceinline__ void MakeGammas(const FusedHeadsArgs& args, float* gammas, int thread,
                                           int threads) {
  if (args.q_gamma == nullptr) return;
  const int pieces = args.head_dim / kHeadWide;
#pragma unroll 1
  for (int i = thread; i < 2 * pieces; i += threads) {
    const bool of_q = i < pieces;
    const int at = (of_q ? i : i - pieces) * kHeadWide;
    float gamma[kHeadWide];
    LoadStored(of_q ? args.q_gamma : args.k_gamma, of_q ? args.q_gamma_type : args.k_gamma_type, at,
               gamma);
    Store(gamma, gammas + (of_q ? 0 : args.head_dim) + at);
  }
}

/// Prepares in shared memory what does not depend on the preceding kernel: sines and cosines of the
/// row's position, the gammas, and zeros after `heads` queries. The caller's barrier follows.
template <class Kernel>
__device__ __forceinline__ void MakeFactors(const FusedHeadsArgs& args, std::int64_t row,
                                            int heads) {
  const int thread = static_cast<int>(threadIdx.x);
  const int empty = (Kernel::kHeads - heads) * Kernel::kChunks;
#pragma unroll 1
  for (int i = thread; i < empty; i += Kernel::kThreads) {
    const int head = heads + i / Kernel::kChunks, chunk = i % Kernel::kChunks;
    *reinterpret_cast<uint4*>(DynamicShared() + Kernel::kQueriesAt + head * Kernel::kRow +
                              chunk * 16) = make_uint4(0, 0, 0, 0);
  }
  MakeGammas(args, reinterpret_cast<float*>(DynamicShared() + Kernel::kGammasAt), thread,
             Kernel::kThreads);
  MakeTurns(args, row, reinterpret_cast<float*>(DynamicShared() + Kernel::kTurnsAt), thread,
            Kernel::kThreads);
}

template <class Cache, class Value, class Kernel>
__device__ __forceinline__ void MakeHeadsOf(const FusedHeadsArgs& args, std::int64_t row,
                                            int kv_head, int first_head, int heads,
                                            const OwnRow& own) {
  constexpr int kKept = (Kernel::kChunks + kHeadLanes - 1) / kHeadLanes;
  constexpr int kGroups = Kernel::kThreads / kHeadLanes;
  const int thread = static_cast<int>(threadIdx.x);
  const int local = thread / kHeadLanes, lane = thread % kHeadLanes, size = args.head_dim;
  const float* const sines = reinterpret_cast<const float*>(DynamicShared() + Kernel::kTurnsAt);
  const float* const gammas = reinterpret_cast<const float*>(DynamicShared() + Kernel::kGammasAt);
  const int items = heads + (own.made ? 2 : 0);  // queries, key, value
  const Value* const from = static_cast<const Value*>(args.qkv) +
                            row * (args.heads + 2 * args.kv_heads) * std::int64_t{size};
#pragma unroll 1
  for (int first = 0; first < items; first += kGroups) {
    const int item = first + local;
    const bool there = item < items, is_q = item < heads, is_value = item == heads + 1;
    const int head = is_q ? first_head + item : args.heads + kv_head + is_value * args.kv_heads;
    const bool norm = there && args.q_gamma != nullptr && !is_value;
    float x[kKept][kHeadWide] = {};
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int at = (i * kHeadLanes + lane) * kHeadWide;
      if (there && at < size) Load(from + head * size + at, x[i]);
    }
    if (first == 0) __syncthreads();  // gammas, sines and cosines are there
    if (args.q_gamma != nullptr) {
      float gamma[kKept][kHeadWide] = {};
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
        const int at = (i * kHeadLanes + lane) * kHeadWide;
        if (norm && at < size) Load(gammas + (is_q ? 0 : size) + at, gamma[i]);
      }
      NormHead<Value>(x, gamma, norm, size, is_q ? args.q_epsilon : args.k_epsilon);
    }
    TurnHead<Value>(x, there && !is_value, args.rope.layout, args.rope.half, sines,
                    sines + args.rope.half);
    if (!there) continue;
    char* const to = DynamicShared() + (is_q ? Kernel::kQueriesAt + item * Kernel::kRow
                                             : Kernel::kOwnAt + is_value * Kernel::kKeyRow);
    float scale = 1;  // of the head in its cache
    if constexpr (kAreCodes<Cache>) {
      if (!is_q) scale = (is_value ? args.value_scales : args.key_scales)[kv_head];
    }
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int at = (i * kHeadLanes + lane) * kHeadWide;
      if (at >= Kernel::kChunks * kHeadWide) continue;
      // Zeros beyond the head.
      if (is_q) {
        using T = MathOf<Cache>;
        StoreQuery<kAreCodes<Cache>>(
            to, at,
            make_uint4(PackPair<T>(x[i][0], x[i][1]), PackPair<T>(x[i][2], x[i][3]),
                       PackPair<T>(x[i][4], x[i][5]), PackPair<T>(x[i][6], x[i][7])));
        continue;
      }
      StoreCached(x[i], reinterpret_cast<Cache*>(to) + at, scale);
    }
  }
}

/// The block's queries in shared memory, and its own key and value if it makes them. The caller's
/// barrier follows.
template <class Cache, class Kernel>
__device__ __forceinline__ void MakeHeads(const FusedHeadsArgs& args, std::int64_t row, int kv_head,
                                          int first_head, int heads, const OwnRow& own) {
  if (args.type == DataType::kFloat32) {
    MakeHeadsOf<Cache, float, Kernel>(args, row, kv_head, first_head, heads, own);
  } else {
    MakeHeadsOf<Cache, __nv_bfloat16, Kernel>(args, row, kv_head, first_head, heads, own);
  }
}

/// Writes the block's own key and value to the cache. Called after the cluster barrier, which would
/// otherwise wait for these stores.
template <class Cache, class Kernel>
__device__ __forceinline__ void StoreOwn(const FusedHeadsArgs& args, const OwnRow& own,
                                         int kv_head) {
  if (own.slot < 0) return;
  const std::int64_t element = (own.slot * args.kv_heads + kv_head) * args.head_dim;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < 2 * Kernel::kKeyChunks; i += Kernel::kThreads) {
    const int is_value = i / Kernel::kKeyChunks, chunk = i % Kernel::kKeyChunks;
    if (chunk * Kernel::kWide >= args.head_dim) continue;
    Cache* const cache = static_cast<Cache*>(is_value ? args.values : args.keys);
    *reinterpret_cast<uint4*>(cache + element + chunk * Kernel::kWide) =
        *reinterpret_cast<const uint4*>(DynamicShared() + Kernel::kOwnAt +
                                        is_value * Kernel::kKeyRow + chunk * 16);
  }
}

}  // namespace culet::cuda_ops
