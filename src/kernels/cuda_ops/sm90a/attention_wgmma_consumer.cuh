// The warpgroups of attention_wgmma.cuh that multiply.
#pragma once

#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/sm90a/attention_wgmma_memory.cuh"
#include "sm90/format.h"
#include "sm90/wgmma.cuh"

namespace culet::cuda_ops {

template <class T>
struct WgmmaFormatOf {
  using Type = sm90::F16;
};
template <>
struct WgmmaFormatOf<__nv_bfloat16> {
  using Type = sm90::Bf16;
};

/// A warpgroup's 64 queries. A lane holds rows lane / 4 and lane / 4 + 8 of its warp's 16, and of
/// every eight columns of scores and output 2 (lane % 4) and the next.
template <class Cache, int kDim>
struct WgmmaConsumer {
  using Kernel = WgmmaKernel<Cache, kDim>;
  using T = MathOf<Cache>;
  using Format = typename WgmmaFormatOf<T>::Type;
  static constexpr int kKeys = Kernel::kKeys;

  const WgmmaArgs& args;
  const WgmmaMemory<Cache, kDim> memory;
  const int warpgroup, thread, lane;  // of the consumers, in the warpgroup, in the warp
  sm90::RingCursor<Kernel::kStages> at;
  int slot = 0;  // of works
  int2 all_see = {};
  float scores[kKeys / 2];
  std::uint32_t weights[kKeys / 16][4];
  float out[kDim / 2];
  float most[2], sum[2], rescale[2];
  float key_scale;  // of codes

  __device__ __forceinline__ const WgmmaWork& work() const { return memory.work(slot); }
  /// Of the scores, with log2 e.
  __device__ __forceinline__ float scale() const {
    if constexpr (Kernel::kCodes) return args.attention.log2_scale * key_scale;
    return args.attention.log2_scale;
  }
  /// The factor of the sums of values: their scale, divided by the sum of weights if `whole` (no
  /// split).
  __device__ __forceinline__ float over(int half, bool whole) const {
    const float of_values = ValueScale<Cache>(args.attention, work().kv_head);
    if (!whole) return of_values;
    float total = sum[half];
    if (args.attention.sinks != nullptr) {
      const int query_there = min(query(half), work().tile.count - 1);
      total = WithSink(args.attention, QueryPlace(args, work(), query_there).head,
                       most[half] * scale(), total);
    }
    return of_values / total;
  }
  /// Of this lane's rows in the tile.
  __device__ __forceinline__ int query(int half) const {
    return warpgroup * 64 + thread / 32 * 16 + lane / 4 + 8 * half;
  }
  __device__ __forceinline__ int2 seen(int half) const { return memory.seen(slot)[query(half)]; }

  /// Starts scores = queries times the keys of stage `which`.
  __device__ __forceinline__ void StartScores(int which) {
    using Product = sm90::Wgmma<Format, kKeys>;
    const std::uint64_t q = sm90::WgmmaDescriptor128(
        SharedAddress(memory.start) +
        static_cast<unsigned>(slot * Kernel::kQueryBytes + warpgroup * 64 * Kernel::kRow));
    const std::uint64_t k = sm90::WgmmaDescriptor128(SharedAddress(memory.stage(which)));
    sm90::FenceRegisters(scores);
    sm90::WgmmaFence();
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const unsigned inside = step % 4 * sm90::kWgmmaKBytes;
      const std::uint64_t a =
          q + sm90::WgmmaDescriptorStep(step / 4 * Kernel::kQueryChunk + inside);
      const std::uint64_t b = k + sm90::WgmmaDescriptorStep(step / 4 * Kernel::kChunk + inside);
      if (step == 0) {
        Product::template Ss<false>(scores, a, b);
      } else {
        Product::template Ss<true>(scores, a, b);
      }
    }
    sm90::WgmmaCommit();
  }

  /// Starts out += weights times the values of stage `which`.
  __device__ __forceinline__ void StartOutput(int which) {
    using Product = sm90::WgmmaTransposedB<Format, kDim>;
    const std::uint64_t v =
        sm90::WgmmaDescriptorTransposed128(SharedAddress(memory.stage(which)), Kernel::kChunk);
    sm90::FenceRegisters(out);
    sm90::WgmmaFence();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      Product::template Rs<true>(out, weights[step],
                                 v + sm90::WgmmaDescriptorStep(step * 16 * Kernel::kRow));
    }
    sm90::WgmmaCommit();
  }

  /// Masks scores of keys from `base` on: kNoKey for keys that a query does not see, NaN for keys
  /// outside the cache (boxes in `lost`, a bit for each copy).
  __device__ __forceinline__ void Mask(int base, unsigned lost) {
    if (lost != 0) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        // A box is a multiple of eight keys.
        if ((lost >> (8 * n / args.box * Kernel::kChunks) & 1) == 0) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[4 * n + i] = NotANumber();
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int2 see = seen(half);
      const int low = see.x - base - lane % 4 * 2, high = see.y - base - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = 8 * n + i;
          if (key < low || key >= high) scores[4 * n + 2 * half + i] = kNoKey;
        }
      }
    }
  }

  /// Turns scores into weights; `rescale` is the factor of all earlier sums.
  __device__ __forceinline__ void Weigh() {
    const float scale = this->scale();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = most[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        highest = fmaxf(highest, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
      }
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 2));
      // Without a key yet there is nothing to scale, and no difference of infinities.
      const float base = highest == kNoKey ? 0.0f : highest * scale;
      rescale[half] = FastExp2(fmaf(most[half], scale, -base));
      most[half] = highest;
      float total = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = FastExp2(fmaf(score, scale, -base));
          total += score;
        }
      }
      sum[half] = fmaf(sum[half], rescale[half], total);
    }
  }

  /// ptxas moves a wait for products up before arithmetic that could run beside them, but not
  /// before a store that needs the result. Sums of weights are never below 0.
  __device__ __forceinline__ void KeepBefore() const {
    asm volatile("{.reg .pred p; setp.lt.f32 p, %0, 0f00000000; @p st.shared.f32 [%1], %0;}" ::"f"(
                     sum[0] + sum[1]),
                 "r"(SharedAddress(memory.start) + Kernel::kSeenAt)
                 : "memory");
  }

  __device__ __forceinline__ void Rescale() {
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) out[i] *= rescale[i / 2 % 2];
  }

  __device__ __forceinline__ void PackWeights() {
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      weights[i / 4][i % 4] = PackPair<T>(scores[2 * i], scores[2 * i + 1]);
    }
  }

  /// A weight of zero does not undo an infinity or a NaN of a key that a query may not see: where
  /// stage `which` holds values of those, they go to those that see them, and zeros stay in their
  /// places. All consumers call it.
  __device__ __forceinline__ void CheckValues(int which, int base) {
    char* const values = memory.stage(which);
    int found = 0;
#pragma unroll 4
    for (int i = 0; i < Kernel::kPieces; ++i) {
      const uint4 piece = *reinterpret_cast<const uint4*>(values + (thread + i * 128) * 16);
      found |= NonFinite<T>(piece.x) | NonFinite<T>(piece.y) | NonFinite<T>(piece.z) |
               NonFinite<T>(piece.w);
    }
    // Both warpgroups get the same answer.
    if (!sm90::NamedAny(kGroupBarrier + warpgroup, 128, found != 0)) return;
#pragma unroll 1
    for (int key = 0; key < kKeys; ++key) {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const auto pair = *reinterpret_cast<const std::uint32_t*>(
            values + n / 8 * Kernel::kChunk +
            TmaOffset128(static_cast<unsigned>(key),
                         static_cast<unsigned>(n % 8 * 16 + lane % 4 * 4)));
        const int in_pair = NonFinite<T>(pair);
        if (in_pair == 0) continue;
        const T* const both = reinterpret_cast<const T*>(&pair);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int2 see = seen(half);
          if (base + key < see.x || base + key >= see.y) continue;
          if ((in_pair & 1) != 0) out[4 * n + 2 * half] += ToFloat(both[0]);
          if ((in_pair & 2) != 0) out[4 * n + 2 * half + 1] += ToFloat(both[1]);
        }
      }
    }
    sm90::NamedSync(kConsumerBarrier, Kernel::kConsumers);
#pragma unroll 1
    for (int i = warpgroup; i < Kernel::kPieces * 4; i += Kernel::kWarpgroups) {
      auto* const pair = reinterpret_cast<std::uint32_t*>(values) + thread + i * 128;
      *pair = FiniteOrZero<T>(*pair);
    }
    sm90::FenceAsyncShared();
    sm90::NamedSync(kConsumerBarrier, Kernel::kConsumers);
  }

  /// Whether a query may not see some key of tile `j`; `lost` are its missing boxes.
  __device__ __forceinline__ bool IsMasked(int base, unsigned lost) const {
    return lost != 0 || base < all_see.x || base + kKeys > all_see.y;
  }

  /// Turns the finished scores into weights.
  __device__ __forceinline__ bool WeighTile(int base, int which) {
    sm90::FenceRegisters(scores);
    const unsigned lost = memory.lost(which);
    const bool masked = IsMasked(base, lost);
    memory.ring().template Release<1>(which, lane);
    if (masked) Mask(base, lost);
    Weigh();
    return masked;
  }

  __device__ __forceinline__ void Multiply() {
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) out[i] = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) most[half] = kNoKey, sum[half] = 0;
    const int tiles = work().tiles;
    if (tiles == 0) return;
    all_see = work().all_see;
    if constexpr (Kernel::kCodes) key_scale = KeyScale<Cache>(args.attention, work().kv_head);
    int base = work().begin + (tiles - 1) * kKeys;
    memory.ring().WaitFull(at);
    StartScores(at.stage);
    sm90::WgmmaWait<0>();
    bool masked = WeighTile(base, at.stage);
    PackWeights();
    at.Advance();
#pragma unroll 1
    for (int j = tiles - 1; j > 0; --j) {
      const int keys = at.stage;
      auto values = at;
      values.Advance();
      if (masked) {
        memory.ring().WaitFull(values);
        CheckValues(values.stage, base);
      }
      memory.ring().WaitFull(at);
      sm90::NamedSync(kTurnBarrier + warpgroup, Kernel::kConsumers);
      StartScores(keys);
      memory.ring().WaitFull(values);
      StartOutput(values.stage);
      sm90::NamedArrive(kTurnBarrier + 1 - warpgroup, Kernel::kConsumers);
      sm90::WgmmaWait<1>();
      base -= kKeys;
      masked = WeighTile(base, keys);
      KeepBefore();
      sm90::WgmmaWait<0>();
      sm90::FenceRegisters(out);
      memory.ring().template Release<1>(values.stage, lane);
      Rescale();
      PackWeights();
      at = values;
      at.Advance();
    }
    memory.ring().WaitFull(at);
    if (masked) CheckValues(at.stage, base);
    StartOutput(at.stage);
    sm90::WgmmaWait<0>();
    sm90::FenceRegisters(out);
    memory.ring().template Release<1>(at.stage, lane);
    at.Advance();
  }

  /// Reduces a row's sum over its lanes.
  __device__ __forceinline__ void AddSums() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(kAllLanes, sum[half], 1);
      sum[half] += __shfl_xor_sync(kAllLanes, sum[half], 2);
    }
  }

  /// Divided outputs of bfloat16, through the queries' place in shared memory, so that a row is
  /// stored 16 bytes at a time.
  __device__ __forceinline__ void StoreRows() {
    const AttentionParams& p = args.attention.params;
    sm90::NamedSync(kGroupBarrier + warpgroup, 128);  // the products have read the queries
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // No key: 0 / 0, the mean of no values.
      const float over = this->over(half, true);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(memory.queries(slot, query(half), n) + lane % 4 * 4) =
            PackPair<__nv_bfloat16>(out[4 * n + 2 * half] * over, out[4 * n + 2 * half + 1] * over);
      }
    }
    __syncwarp();
    constexpr int kRowPieces = kDim / 8;
#pragma unroll 4
    for (int i = lane; i < 16 * kRowPieces; i += 32) {
      const int of_tile = warpgroup * 64 + thread / 32 * 16 + i / kRowPieces;
      const int piece = i % kRowPieces;
      if (of_tile >= work().tile.count || piece * 8 >= p.head_dim) continue;
      *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(args.attention.out) +
                                QueryPlace(args, work(), of_tile).element(p) + piece * 8) =
          *reinterpret_cast<const uint4*>(memory.queries(slot, of_tile, piece));
    }
  }

  /// Stores divided outputs of float32, or the split's partial results.
  __device__ __forceinline__ void StorePairs() {
    const AttentionParams& p = args.attention.params;
    const bool whole = work().splits == 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (query(half) >= work().tile.count) continue;
      const QueryPlace place(args, work(), query(half));
      const std::int64_t element = place.element(p);
      const AttentionPart part(args.attention, args.attention.rows, place.row, place.head,
                               args.attention.plan.tiles.most, work().split);
      const float over = this->over(half, whole);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const int dim = 8 * n + lane % 4 * 2;
        if (8 * n >= p.head_dim) break;
        const float x = out[4 * n + 2 * half] * over, y = out[4 * n + 2 * half + 1] * over;
        if (whole) {
          StorePair(x, y, args.attention, element + dim);
        } else {
          const float pair[2] = {x, y};
          Store(pair, part.values + dim);
        }
      }
      if (!whole && lane % 4 == 0) {
        // Maxima become powers of two.
        part.maxima[part.index] = most[half] == kNoKey ? kNoKey : most[half] * scale();
        part.sums[part.index] = sum[half];
      }
    }
  }

  /// Adds the splits where all of them have been stored.
  __device__ __forceinline__ void Merge() {
    const int consumer = warpgroup * 128 + thread;
    const auto any = [](bool mine) {
      return sm90::NamedAny(kConsumerBarrier, Kernel::kConsumers, mine);
    };
    if (!IsLastSplit(args.attention.counters + work().unit, work().splits, consumer, any)) return;
    MergeTile(args.attention, work().tile, work().kv_head, work().splits, consumer,
              Kernel::kConsumers);
  }

  __device__ __forceinline__ void Run() {
    if (warpgroup == 1) sm90::NamedArrive(kTurnBarrier, Kernel::kConsumers);
    sm90::RingCursor<Kernel::kWorks> work_at;
#pragma unroll 1
    while (true) {
      memory.works().WaitFull(work_at);
      slot = work_at.stage;
      if (work().tiles < 0) break;
      Multiply();
      AddSums();
      if (work().splits == 1 && args.attention.out_type == DataType::kBfloat16) {
        StoreRows();
      } else {
        StorePairs();
        if (work().splits > 1) Merge();
      }
      __syncwarp();
      memory.works().template Release<1>(slot, lane);
      work_at.Advance();
    }
    // Consumes the last turn, which has no owner.
    if (warpgroup == 0) sm90::NamedSync(kTurnBarrier, Kernel::kConsumers);
  }
};

}  // namespace culet::cuda_ops
