// Attention of prompts on Hopper's warpgroup products, after FlashAttention-3 (Shah et al., 2024):
// a block takes 128 queries of one sequence and key-value head, rows and the heads of their group
// together. A warpgroup brings keys and values through the block table into a ring of shared memory
// (TMA, a box of keys of one block of the cache at a time); two warpgroups multiply, 64 queries
// each. A warpgroup starts the scores of the next keys before it weighs these, and the two take
// turns, so that tensor cores have one's products while the other computes its softmax.
#pragma once

#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/attention_tile.cuh"
#include "sm90/descriptor.h"
#include "sm90/pipeline.cuh"
#include "sm90/sync.cuh"
#include "sm90/tensor_map.h"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::cuda_ops {

struct WgmmaArgs {
  AttentionArgs attention;
  int box = 0, boxes = 0;  ///< keys of a box, boxes of a tile of keys
  CUtensorMap k, v;        ///< (head_dim, kv_heads, key_rows)
};

/// What a block knows of its work.
struct WgmmaTile {
  Tile tile;
  int kv_head;
  int begin, end, tiles;  ///< keys of the split; `begin` starts a box
  int splits;
  int2 all_see;  ///< keys of the split that all queries see
};

template <int kDim>
struct WgmmaKernel {
  static constexpr int kWarpgroups = 2, kQueries = kWgmmaQueries;
  static constexpr int kConsumers = 128 * kWarpgroups, kThreads = 128 + kConsumers;
  static constexpr int kKeys = WgmmaKeys(kDim);
  // A row of 128 bytes holds 64 dimensions; a tile has the first 64 of all its rows, then the next.
  static constexpr int kRow = 128, kChunks = (kDim + 63) / 64;
  static constexpr int kQueryChunk = kQueries * kRow, kChunk = kKeys * kRow;
  static constexpr int kStageBytes = kChunks * kChunk;
  static constexpr int kPieces = kStageBytes / 16 / kConsumers;  // of 16 bytes, a consumer
  static constexpr int kOtherBytes =
      kQueries * static_cast<int>(sizeof(int2)) + kQueries / 32 * static_cast<int>(sizeof(int4));
  static constexpr int kMostBytes = 232448;  // shared memory of a block
  static constexpr int kRoom =
      (kMostBytes - 1024 - kOtherBytes - kChunks * kQueryChunk) / kStageBytes;
  static constexpr int kStages = kRoom < 8 ? kRoom : 8;
  // Shared memory: queries, the ring, the keys that each query sees, what the warps say of them,
  // barriers, the boxes of each stage whose keys lie outside the cache.
  static constexpr int kStagesAt = kChunks * kQueryChunk;
  static constexpr int kSeenAt = kStagesAt + kStages * kStageBytes;
  static constexpr int kBoundsAt = kSeenAt + kQueries * static_cast<int>(sizeof(int2));
  static constexpr int kRingAt = kBoundsAt + kQueries / 32 * static_cast<int>(sizeof(int4));
  static constexpr int kLostAt = kRingAt + static_cast<int>(sizeof(sm90::Ring<kStages>));
  static constexpr int kShared = kLostAt + kStages * static_cast<int>(sizeof(unsigned));
  static_assert(kStages >= 4 && kShared <= kMostBytes);
  static_assert(kSeenAt % 16 == 0 && kRingAt % 16 == 0);
  // 64 Ki registers = 128 x (producer + 2 x consumer); multiples of 8.
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
};

template <class T>
struct WgmmaFormatOf {
  using Type = sm90::F16;
};
template <>
struct WgmmaFormatOf<__nv_bfloat16> {
  using Type = sm90::Bf16;
};

// Named barriers; 0 is the block's.
inline constexpr int kTurnBarrier = 1;      // one a warpgroup
inline constexpr int kGroupBarrier = 3;     // one a warpgroup: its own threads
inline constexpr int kConsumerBarrier = 5;  // both

/// The warps that bring keys (the first two) and values (the others), a half of the boxes each. The
/// ring has them in the order in which consumers want them: values of a tile behind the keys of the
/// next one.
template <int kDim>
__device__ __forceinline__ void ProduceTiles(const WgmmaArgs& args, const WgmmaTile& work,
                                             char* memory) {
  using Kernel = WgmmaKernel<kDim>;
  constexpr int kChunks = Kernel::kChunks;
  static_assert(kChunks * Kernel::kKeys / kLeastBox <= 32, "a lane for each copy");
  auto& ring = *reinterpret_cast<sm90::Ring<Kernel::kStages>*>(memory + Kernel::kRingAt);
  auto* const lost = reinterpret_cast<unsigned*>(memory + Kernel::kLostAt);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const bool values = warp / 2 != 0, first_half = warp % 2 == 0;
  const int box = lane / kChunks, chunk = lane % kChunks;
  const bool mine = box < args.boxes && lane % 2 == warp % 2;
  const CUtensorMap* const map = values ? &args.v : &args.k;
  const int offset = Kernel::kStagesAt + chunk * Kernel::kChunk + box * args.box * Kernel::kRow;
  KeyRange range;
  range.sequence = work.tile.sequence;
  const auto row_of = [&](int tile) {
    const int key = work.begin + tile * Kernel::kKeys + box * args.box;
    return tile >= 0 && box < args.boxes && key < work.end ? range.RowOf(args.attention, key)
                                                           : kBeyond;
  };
  sm90::RingCursor<Kernel::kStages> at;
  if (values) at.Skip(work.tiles == 1 ? 1 : 2);
  int row = row_of(work.tiles - 1);
#pragma unroll 1
  for (int tile = work.tiles - 1; tile >= 0; --tile) {
    ring.WaitEmpty(at);
    const unsigned outside = __ballot_sync(kAllLanes, row == -1);
    if (first_half && lane == 0) {
      lost[at.stage] = outside;
      sm90::BarrierArriveExpect(&ring.full[at.stage], Kernel::kStageBytes);
    }
    if (mine) {
      // Rows outside of the cache read as zeros.
      sm90::TmaLoad3(memory + offset + at.stage * Kernel::kStageBytes, map, &ring.full[at.stage],
                     chunk * 64, work.kv_head, row < 0 ? -Kernel::kKeys : row);
    }
    row = row_of(tile - 1);
    at.Skip(tile == (values ? 1 : work.tiles - 1) ? 1 : 2);
  }
}

/// A warpgroup's 64 queries. A lane holds rows lane / 4 and lane / 4 + 8 of its warp's 16: of the
/// scores and of the output columns 2 (lane % 4) and the next of every eight.
template <class T, int kDim>
struct WgmmaConsumer {
  using Kernel = WgmmaKernel<kDim>;
  using Format = typename WgmmaFormatOf<T>::Type;
  static constexpr int kKeys = Kernel::kKeys;

  const WgmmaArgs& args;
  const WgmmaTile& work;
  char* const memory;
  const int warpgroup, thread, lane;  // of the consumers, in the warpgroup, in the warp
  sm90::RingCursor<Kernel::kStages> at;
  float scores[kKeys / 2];
  std::uint32_t weights[kKeys / 16][4];
  float out[kDim / 2];
  float most[2] = {kNoKey, kNoKey}, sum[2] = {}, rescale[2] = {};

  __device__ __forceinline__ sm90::Ring<Kernel::kStages>& ring() const {
    return *reinterpret_cast<sm90::Ring<Kernel::kStages>*>(memory + Kernel::kRingAt);
  }
  __device__ __forceinline__ int2 seen(int half) const {
    return reinterpret_cast<const int2*>(memory + Kernel::kSeenAt)[query(half)];
  }
  /// Of this lane's rows in the tile.
  __device__ __forceinline__ int query(int half) const {
    return warpgroup * 64 + thread / 32 * 16 + lane / 4 + 8 * half;
  }
  __device__ __forceinline__ std::int64_t row_of(int i, int group) const {
    return static_cast<std::int64_t>(work.tile.row) + (work.tile.first + i) / group;
  }
  __device__ __forceinline__ int head_of(int i, int group) const {
    return work.kv_head * group + (work.tile.first + i) % group;
  }
  __device__ __forceinline__ char* stage(int which) const {
    return memory + Kernel::kStagesAt + which * Kernel::kStageBytes;
  }

  /// This warpgroup's queries to shared memory, rounded to T; zeros beyond the tile and the head.
  __device__ __forceinline__ void LoadQueries() {
    const AttentionParams& p = args.attention.params;
    const int group = p.heads / p.kv_heads;
    constexpr int kPieces = Kernel::kChunks * 8;
#pragma unroll 4
    for (int i = thread; i < 64 * kPieces; i += 128) {
      const int query = warpgroup * 64 + i / kPieces, piece = i % kPieces;
      const std::int64_t element =
          (row_of(query, group) * p.heads + head_of(query, group)) * p.head_dim;
      *reinterpret_cast<uint4*>(memory + piece / 8 * Kernel::kQueryChunk +
                                sm90::SwizzledOffset(sm90::SwizzleMode::k128Bytes,
                                                     static_cast<unsigned>(query),
                                                     static_cast<unsigned>(piece % 8 * 16))) =
          query < work.tile.count ? LoadQuery<T>(args.attention, element, piece * 8)
                                  : make_uint4(0, 0, 0, 0);
    }
    sm90::FenceAsyncShared();
    sm90::NamedSync(kGroupBarrier + warpgroup, 128);
  }

  /// Starts scores = queries times the keys of stage `which`.
  __device__ __forceinline__ void StartScores(int which) {
    using Product = sm90::Wgmma<Format, kKeys>;
    const std::uint64_t q = sm90::WgmmaDescriptor128(
        SharedAddress(memory) + static_cast<unsigned>(warpgroup * 64 * Kernel::kRow));
    const std::uint64_t k = sm90::WgmmaDescriptor128(SharedAddress(stage(which)));
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
        sm90::WgmmaDescriptorTransposed128(SharedAddress(stage(which)), Kernel::kChunk);
    sm90::FenceRegisters(out);
    sm90::WgmmaFence();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      Product::template Rs<true>(out, weights[step],
                                 v + sm90::WgmmaDescriptorStep(step * 16 * Kernel::kRow));
    }
    sm90::WgmmaCommit();
  }

  /// Scores of keys from `base` on that a query does not see become kNoKey, of those outside the
  /// cache, in the boxes `lost` (a bit for each copy of one), NaN.
  __device__ __forceinline__ void Mask(int base, unsigned lost) {
    if (lost != 0) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        // A box has whole eights.
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

  /// Scores become weights; `rescale` is what all before counts from now on.
  __device__ __forceinline__ void Weigh() {
    const float scale = args.attention.log2_scale;
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
                 "r"(SharedAddress(memory) + Kernel::kSeenAt)
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
    char* const values = stage(which);
    const int consumer = warpgroup * 128 + thread;
    int found = 0;
#pragma unroll 4
    for (int i = 0; i < Kernel::kPieces; ++i) {
      const uint4 piece =
          *reinterpret_cast<const uint4*>(values + (consumer + i * Kernel::kConsumers) * 16);
      found |= NonFinite<T>(piece.x) | NonFinite<T>(piece.y) | NonFinite<T>(piece.z) |
               NonFinite<T>(piece.w);
    }
    if (!sm90::NamedAny(kConsumerBarrier, Kernel::kConsumers, found != 0)) return;
#pragma unroll 1
    for (int key = 0; key < kKeys; ++key) {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const auto pair = *reinterpret_cast<const std::uint32_t*>(
            values + n / 8 * Kernel::kChunk +
            sm90::SwizzledOffset(sm90::SwizzleMode::k128Bytes, static_cast<unsigned>(key),
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
    for (int i = 0; i < Kernel::kPieces * 4; ++i) {
      auto* const pair =
          reinterpret_cast<std::uint32_t*>(values) + consumer + i * Kernel::kConsumers;
      *pair = FiniteOrZero<T>(*pair);
    }
    sm90::FenceAsyncShared();
    sm90::NamedSync(kConsumerBarrier, Kernel::kConsumers);
  }

  /// Whether some query may not see some key of tile `j`, `lost` of whose boxes are not there.
  __device__ __forceinline__ bool IsMasked(int base, unsigned lost) const {
    return lost != 0 || base < work.all_see.x || base + kKeys > work.all_see.y;
  }

  /// Weights of the scores, which have come.
  __device__ __forceinline__ bool WeighTile(int base, int which) {
    sm90::FenceRegisters(scores);
    const unsigned lost = reinterpret_cast<const unsigned*>(memory + Kernel::kLostAt)[which];
    const bool masked = IsMasked(base, lost);
    ring().template Release<1>(which, lane);
    if (masked) Mask(base, lost);
    Weigh();
    return masked;
  }

  __device__ __forceinline__ void Run() {
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) out[i] = 0;
    LoadQueries();
    if (work.tiles == 0) return;
    if (warpgroup == 1) sm90::NamedArrive(kTurnBarrier, Kernel::kConsumers);
    int base = work.begin + (work.tiles - 1) * kKeys;
    ring().WaitFull(at);
    StartScores(at.stage);
    sm90::WgmmaWait<0>();
    bool masked = WeighTile(base, at.stage);
    PackWeights();
    at.Advance();
#pragma unroll 1
    for (int j = work.tiles - 1; j > 0; --j) {
      const int keys = at.stage;
      auto values = at;
      values.Advance();
      if (masked) {
        ring().WaitFull(values);
        CheckValues(values.stage, base);
      }
      ring().WaitFull(at);
      sm90::NamedSync(kTurnBarrier + warpgroup, Kernel::kConsumers);
      StartScores(keys);
      ring().WaitFull(values);
      StartOutput(values.stage);
      if ((warpgroup == 0 || j > 1)) {
        sm90::NamedArrive(kTurnBarrier + 1 - warpgroup, Kernel::kConsumers);
      }
      sm90::WgmmaWait<1>();
      base -= kKeys;
      masked = WeighTile(base, keys);
      KeepBefore();
      sm90::WgmmaWait<0>();
      sm90::FenceRegisters(out);
      ring().template Release<1>(values.stage, lane);
      Rescale();
      PackWeights();
      at = values;
      at.Advance();
    }
    ring().WaitFull(at);
    if (masked) CheckValues(at.stage, base);
    StartOutput(at.stage);
    sm90::WgmmaWait<0>();
    sm90::FenceRegisters(out);
  }

  /// Divides, and stores, or leaves the split's part.
  __device__ __forceinline__ void Finish() {
    const AttentionParams& p = args.attention.params;
    const int group = p.heads / p.kv_heads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& total = sum[half];
      total += __shfl_xor_sync(kAllLanes, total, 1);
      total += __shfl_xor_sync(kAllLanes, total, 2);
      const int i = query(half);
      if (i >= work.tile.count) continue;
      const std::int64_t row = row_of(i, group);
      const int head = head_of(i, group);
      const std::int64_t element = (row * p.heads + head) * p.head_dim;
      const AttentionPart part(args.attention, args.attention.rows, row, head,
                               args.attention.plan.tiles.most, static_cast<int>(blockIdx.y));
      const bool whole = work.splits == 1;
      // No key: 0 / 0, the mean of no values.
      const float over = whole ? 1 / total : 1.0f;
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
        part.maxima[part.index] =
            most[half] == kNoKey ? kNoKey : most[half] * args.attention.log2_scale;
        part.sums[part.index] = total;
      }
    }
    if (work.splits == 1) return;
    const int consumer = warpgroup * 128 + thread;
    const auto any = [](bool mine) {
      return sm90::NamedAny(kConsumerBarrier, Kernel::kConsumers, mine);
    };
    if (!IsLastSplit(args.attention.counters + blockIdx.x, work.splits, consumer, any)) return;
    MergeTile(args.attention, work.tile, work.kv_head, work.splits, consumer, Kernel::kConsumers);
  }
};

/// Requires: K and V of T, and what LaunchWgmma sets.
template <class T, int kDim>
__global__ void __launch_bounds__(WgmmaKernel<kDim>::kThreads, 1)
    AttentionWgmma(const __grid_constant__ WgmmaArgs args) {
  using Kernel = WgmmaKernel<kDim>;
  const AttentionParams& p = args.attention.params;
  const int thread = static_cast<int>(threadIdx.x);
  extern __shared__ __align__(1024) char swizzled_shared[];
  char* const memory = swizzled_shared;
  if (thread == 0) {
    auto& ring = *reinterpret_cast<sm90::Ring<Kernel::kStages>*>(memory + Kernel::kRingAt);
    sm90::PrefetchTensorMap(&args.k);
    sm90::PrefetchTensorMap(&args.v);
    ring.InitFull(sm90::FullArrivals());
    ring.InitEmpty(sm90::EmptyArrivals(4 * Kernel::kWarpgroups, 1));
    sm90::BarrierInitFence();
  }
  WaitForPrevious();
  const int group = p.heads / p.kv_heads;
  WgmmaTile work;
  work.tile = Tile(args.attention, static_cast<int>(blockIdx.x / static_cast<unsigned>(p.kv_heads)),
                   group, Kernel::kQueries);
  if (work.tile.count == 0) return;
  work.kv_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.kv_heads));
  int2* const seen = reinterpret_cast<int2*>(memory + Kernel::kSeenAt);
  const SeenKeys found = FindSeenKeys<Kernel::kQueries>(
      args.attention, work.tile, group, seen, reinterpret_cast<int4*>(memory + Kernel::kBoundsAt));
  // Tiles begin where boxes may.
  const int first = min(found.first, found.last) & -kMostBox;
  const SplitKeys keys(args.attention.plan.tiles, first, found.last);
  if (keys.idle()) return;
  work.begin = keys.begin;
  work.end = keys.end;
  work.tiles = (keys.end - keys.begin + Kernel::kKeys - 1) / Kernel::kKeys;
  work.splits = keys.splits;
  work.all_see = make_int2(found.all_first, min(found.all_last, keys.end));
  if (thread < Kernel::kQueries) seen[thread].y = min(seen[thread].y, keys.end);
  __syncthreads();

  const int role = sm90::WarpUniform(thread / 128);
  if (role == 0) {
    sm90::RegistersDown<Kernel::kProducerRegisters>();
    if (work.tiles > 0) ProduceTiles<kDim>(args, work, memory);
  } else {
    sm90::RegistersUp<Kernel::kConsumerRegisters>();
    WgmmaConsumer<T, kDim> consumer{.args = args,
                                    .work = work,
                                    .memory = memory,
                                    .warpgroup = role - 1,
                                    .thread = thread % 128,
                                    .lane = thread % 32};
    consumer.Run();
    consumer.Finish();
  }
}

template <class T, int kDim>
cudaError_t LaunchWgmmaOf(const AttentionArgs& given, LaunchStream stream) {
  const AttentionParams& p = given.params;
  WgmmaArgs args;
  args.attention = given;
  args.box = WgmmaBox(given.table == nullptr ? 0 : p.block_size);
  args.boxes = WgmmaKeys(kDim) / args.box;
  sm90::TensorMapPlan plan;
  plan.inner = static_cast<std::uint64_t>(p.head_dim);
  plan.outer = static_cast<std::uint64_t>(p.kv_heads);
  plan.depth = static_cast<std::uint64_t>(given.key_rows);
  plan.pitch_bytes = plan.inner * 2;
  plan.depth_bytes = plan.outer * plan.pitch_bytes;
  plan.box_inner = 64;
  plan.box_outer = 1;
  plan.box_depth = static_cast<std::uint32_t>(args.box);
  plan.element_bytes = 2;
  if (!sm90::EncodeTensorMap(plan, given.k, &args.k) ||
      !sm90::EncodeTensorMap(plan, given.v, &args.v)) {
    return cudaErrorInvalidValue;
  }
  using Kernel = WgmmaKernel<kDim>;
  return LaunchShared(
      &AttentionWgmma<T, kDim>,
      Blocks(TileBlocks(p, given.rows, given.sequences, Kernel::kQueries), given.plan.tiles.most),
      Kernel::kThreads, Kernel::kShared, stream, args);
}

template <class T>
cudaError_t LaunchWgmma(const AttentionArgs& args, LaunchStream stream) {
  return WithHeadDim(args.params.head_dim, [&]<int kDim>(std::integral_constant<int, kDim>) {
    return LaunchWgmmaOf<T, kDim>(args, stream);
  });
}

template <class T>
cudaError_t AllowWgmma(int head_dim) {
  return WithHeadDim(head_dim, []<int kDim>(std::integral_constant<int, kDim>) {
    return AllowShared(&AttentionWgmma<T, kDim>, WgmmaKernel<kDim>::kShared);
  });
}

}  // namespace culet::cuda_ops
