// Attention of prompts on Hopper's warpgroup products, after FlashAttention-3 (Shah et al., 2024):
// a block takes 128 queries of one sequence and key-value head, rows and the heads of their group
// together. A warpgroup brings keys and values through the block table into a ring of shared memory
// (TMA, a box of keys of one block of the cache at a time); two warpgroups multiply, 64 queries
// each. A warpgroup starts the scores of the next keys before it weighs these, and the two take
// turns, so that tensor cores have one's products while the other computes its softmax.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/attention_tile.cuh"
#include "sm90/descriptor.h"
#include "sm90/pipeline.cuh"
#include "sm90/scheduler.h"
#include "sm90/sync.cuh"
#include "sm90/tensor_map.h"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::cuda_ops {

struct WgmmaArgs {
  AttentionArgs attention;
  int box = 0, boxes = 0;  ///< keys of a box, boxes of a tile of keys
  int units = 0;           ///< tiles of all key-value heads
  sm90::Divisor group, kv_heads, all_units;
  CUtensorMap k, v;  ///< (head_dim, kv_heads, key_rows)
};

/// A tile, and a split of the keys that it sees.
struct WgmmaWork {
  Tile tile;
  int kv_head, unit, split;
  int begin, end, tiles;  ///< keys of the split; `begin` starts a box. tiles: -1 ends the work
  int splits;
  int2 all_see;  ///< keys of the split that all queries see
};

/// Where query `i` of a tile lies.
struct QueryPlace {
  std::int64_t row;
  int head;
  __device__ __forceinline__ QueryPlace(const WgmmaArgs& args, const WgmmaWork& work, int i) {
    const int query = work.tile.first + i, size = args.attention.params.heads;
    const int group = size / args.attention.params.kv_heads;
    const int of_row = args.group.Quotient(query);
    row = static_cast<std::int64_t>(work.tile.row) + of_row;
    head = work.kv_head * group + query - of_row * group;
  }
  __device__ __forceinline__ std::int64_t element(const AttentionParams& p) const {
    return (row * p.heads + head) * p.head_dim;
  }
};

template <int kDim>
struct WgmmaKernel {
  static constexpr int kWarpgroups = 2, kQueries = kWgmmaQueries;
  static constexpr int kConsumers = 128 * kWarpgroups, kThreads = 128 + kConsumers;
  static constexpr int kKeys = WgmmaKeys(kDim);
  // A row of 128 bytes holds 64 dimensions; a tile has the first 64 of all its rows, then the next.
  static constexpr int kRow = 128, kChunks = (kDim + 63) / 64;
  static constexpr int kQueryChunk = kQueries * kRow, kChunk = kKeys * kRow;
  static constexpr int kStageBytes = kChunks * kChunk, kQueryBytes = kChunks * kQueryChunk;
  static constexpr int kPieces = kStageBytes / 16 / 128;  // of 16 bytes, a thread of a warpgroup
  static constexpr int kWorks = kDim <= 128 ? 2 : 1;      // whose queries are there at once
  // What a unit of work has in shared memory beside its queries: itself, the keys that each query
  // sees.
  static constexpr int kWorkBytes = (static_cast<int>(sizeof(WgmmaWork)) + 15) / 16 * 16;
  static constexpr int kSeenBytes = kQueries * static_cast<int>(sizeof(int2));
  static constexpr int kBoundsBytes = kQueries / 32 * static_cast<int>(sizeof(int4));
  static constexpr int kMostStages = 8, kMostBytes = 232448;
  static constexpr int kOtherBytes =
      kWorks * (kWorkBytes + kSeenBytes) + kBoundsBytes + kMostStages * 20 + kWorks * 16;
  static constexpr int kRoom = (kMostBytes - kOtherBytes - kWorks * kQueryBytes) / kStageBytes;
  static constexpr int kStages = kRoom < kMostStages ? kRoom : kMostStages;
  // Shared memory: queries, the ring of keys and values, the rest; for each stage the boxes whose
  // keys lie outside the cache.
  static constexpr int kStagesAt = kWorks * kQueryBytes;
  static constexpr int kSeenAt = kStagesAt + kStages * kStageBytes;
  static constexpr int kWorksAt = kSeenAt + kWorks * kSeenBytes;
  static constexpr int kBoundsAt = kWorksAt + kWorks * kWorkBytes;
  static constexpr int kRingAt = kBoundsAt + kBoundsBytes;
  static constexpr int kWorkRingAt = kRingAt + static_cast<int>(sizeof(sm90::Ring<kStages>));
  static constexpr int kLostAt = kWorkRingAt + static_cast<int>(sizeof(sm90::Ring<kWorks>));
  static constexpr int kShared = kLostAt + kStages * static_cast<int>(sizeof(unsigned));
  static_assert(kStages >= 4 && kShared <= kMostBytes);
  static_assert(kSeenAt % 16 == 0 && kRingAt % 16 == 0);
  // 64 Ki registers = 128 x (producer + 2 x consumer); multiples of 8.
  static constexpr int kProducerRegisters = 72, kConsumerRegisters = 216;
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
inline constexpr int kProducerBarrier = 6;

/// What lies in a block's shared memory.
template <int kDim>
struct WgmmaMemory {
  using Kernel = WgmmaKernel<kDim>;
  char* start;
  __device__ __forceinline__ auto& ring() const {
    return *reinterpret_cast<sm90::Ring<Kernel::kStages>*>(start + Kernel::kRingAt);
  }
  __device__ __forceinline__ auto& works() const {
    return *reinterpret_cast<sm90::Ring<Kernel::kWorks>*>(start + Kernel::kWorkRingAt);
  }
  __device__ __forceinline__ WgmmaWork& work(int slot) const {
    return *reinterpret_cast<WgmmaWork*>(start + Kernel::kWorksAt + slot * Kernel::kWorkBytes);
  }
  __device__ __forceinline__ int2* seen(int slot) const {
    return reinterpret_cast<int2*>(start + Kernel::kSeenAt + slot * Kernel::kSeenBytes);
  }
  __device__ __forceinline__ int4* bounds() const {
    return reinterpret_cast<int4*>(start + Kernel::kBoundsAt);
  }
  __device__ __forceinline__ unsigned& lost(int stage) const {
    return reinterpret_cast<unsigned*>(start + Kernel::kLostAt)[stage];
  }
  __device__ __forceinline__ char* stage(int which) const {
    return start + Kernel::kStagesAt + which * Kernel::kStageBytes;
  }
  /// 16 bytes of query `query`.
  __device__ __forceinline__ char* queries(int slot, int query, int piece) const {
    return start + slot * Kernel::kQueryBytes + piece / 8 * Kernel::kQueryChunk +
           sm90::SwizzledOffset(sm90::SwizzleMode::k128Bytes, static_cast<unsigned>(query),
                                static_cast<unsigned>(piece % 8 * 16));
  }
};

/// The warpgroup that finds the work and brings what it needs.
template <class T, int kDim>
struct WgmmaProducer {
  using Kernel = WgmmaKernel<kDim>;
  static constexpr int kChunks = Kernel::kChunks;
  static_assert(kChunks * Kernel::kKeys / kLeastBox <= 32, "a lane for each copy");

  const WgmmaArgs& args;
  const WgmmaMemory<kDim> memory;
  const int thread;
  sm90::RingCursor<Kernel::kStages> at;
  sm90::RingCursor<Kernel::kWorks> work_at;

  __device__ __forceinline__ static void Sync() { sm90::NamedSync(kProducerBarrier, 128); }

  /// Work `index` of all, in the next slot of works; false: there is none.
  __device__ __forceinline__ bool Find(std::int64_t index, WgmmaWork& work) {
    const AttentionParams& p = args.attention.params;
    const int group = p.heads / p.kv_heads;
    work.split = args.all_units.Quotient(static_cast<int>(index));
    work.unit = static_cast<int>(index) - work.split * args.units;
    const int of_head = args.kv_heads.Quotient(work.unit);
    work.kv_head = work.unit - of_head * p.kv_heads;
    work.tile = Tile(args.attention, of_head, group, Kernel::kQueries);
    if (work.tile.count == 0) return false;
    memory.works().WaitEmpty(work_at);
    Sync();  // the bounds of the work before have been read
    int2* const seen = memory.seen(work_at.stage);
    const SeenKeys found = FindSeenKeys<Kernel::kQueries>(args.attention, work.tile, group, seen,
                                                          memory.bounds(), Sync);
    // Tiles begin where boxes may.
    const SplitKeys keys(args.attention.plan.tiles, min(found.first, found.last) & -kMostBox,
                         found.last, work.split);
    if (keys.idle()) return false;
    work.begin = keys.begin;
    work.end = keys.end;
    work.tiles = (keys.end - keys.begin + Kernel::kKeys - 1) / Kernel::kKeys;
    work.splits = keys.splits;
    work.all_see = make_int2(found.all_first, min(found.all_last, keys.end));
    seen[thread].y = min(seen[thread].y, keys.end);
    if (thread == 0) memory.work(work_at.stage) = work;
    return true;
  }

  /// The queries on their way to shared memory, rounded to T; zeros beyond the tile and the head.
  __device__ __forceinline__ void StartQueries(const WgmmaWork& work) {
    const AttentionParams& p = args.attention.params;
    constexpr int kPieces = kChunks * 8;
    const bool as_is =
        std::is_same_v<T, __nv_bfloat16> && args.attention.q_type == DataType::kBfloat16;
    const int piece = thread % kPieces;
#pragma unroll 2
    for (int query = thread / kPieces; query < Kernel::kQueries; query += 128 / kPieces) {
      const bool there = query < work.tile.count && piece * 8 < p.head_dim;
      const std::int64_t element = there ? QueryPlace(args, work, query).element(p) : 0;
      char* const to = memory.queries(work_at.stage, query, piece);
      if (as_is) {
        CopyAsync16(SharedAddress(to),
                    static_cast<const T*>(args.attention.q) + element + (there ? piece * 8 : 0),
                    there ? 16 : 0);
      } else {
        *reinterpret_cast<uint4*>(to) =
            there ? LoadQuery<T>(args.attention, element, piece * 8) : make_uint4(0, 0, 0, 0);
      }
    }
    CommitCopies();
  }

  /// The work and its queries are there.
  __device__ __forceinline__ void Publish() {
    AwaitCopies<0>();
    sm90::FenceAsyncShared();
    sm90::BarrierArrive(&memory.works().full[work_at.stage]);
    work_at.Advance();
  }

  /// Two warps bring keys, the other two values, each a half of the boxes.
  __device__ __forceinline__ void BringTiles(const WgmmaWork& work) {
    auto& ring = memory.ring();
    const int lane = thread % 32, warp = thread / 32;
    const bool values = warp / 2 != 0, first_half = warp % 2 == 0;
    const int box = lane / kChunks, chunk = lane % kChunks;
    const bool mine = box < args.boxes && lane % 2 == warp % 2;
    const CUtensorMap* const map = values ? &args.v : &args.k;
    const int offset = chunk * Kernel::kChunk + box * args.box * Kernel::kRow;
    KeyRange range;
    range.sequence = work.tile.sequence;
    const auto row_of = [&](int i) {
      const int key = work.begin + (work.tiles - 1 - i) * Kernel::kKeys + box * args.box;
      return i < work.tiles && box < args.boxes && key < work.end ? range.RowOf(args.attention, key)
                                                                  : kBeyond;
    };
    const auto slot = [&](int i) {
      return values ? WgmmaValueSlot(i, work.tiles) : WgmmaKeySlot(i, work.tiles);
    };
    int row = row_of(0);
    at.Skip(slot(0));
#pragma unroll 1
    for (int i = 0; i < work.tiles; ++i) {
      ring.WaitEmpty(at);
      const unsigned outside = __ballot_sync(kAllLanes, row == -1);
      if (first_half && lane == 0) {
        memory.lost(at.stage) = outside;
        sm90::BarrierArriveExpect(&ring.full[at.stage], Kernel::kStageBytes);
      }
      if (mine) {
        // Rows outside of the cache read as zeros.
        sm90::TmaLoad3(memory.stage(at.stage) + offset, map, &ring.full[at.stage], chunk * 64,
                       work.kv_head, row < 0 ? -Kernel::kKeys : row);
      }
      row = row_of(i + 1);
      at.Skip(slot(i + 1) - slot(i));
      if (i == 0) Publish();
    }
    if (work.tiles == 0) Publish();
  }

  __device__ __forceinline__ void Run() {
    const std::int64_t all = std::int64_t{args.units} * args.attention.plan.tiles.most;
    const int blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
    for (std::int64_t round = 0; round * blocks < all; ++round) {
      const std::int64_t index = WgmmaTurn(round, static_cast<int>(blockIdx.x), blocks);
      WgmmaWork work;
      if (index >= all || !Find(index, work)) continue;
      StartQueries(work);
      BringTiles(work);
    }
    memory.works().WaitEmpty(work_at);
    if (thread == 0) memory.work(work_at.stage).tiles = -1;
    Publish();
  }
};

/// A warpgroup's 64 queries. A lane holds rows lane / 4 and lane / 4 + 8 of its warp's 16: of the
/// scores and of the output columns 2 (lane % 4) and the next of every eight.
template <class T, int kDim>
struct WgmmaConsumer {
  using Kernel = WgmmaKernel<kDim>;
  using Format = typename WgmmaFormatOf<T>::Type;
  static constexpr int kKeys = Kernel::kKeys;

  const WgmmaArgs& args;
  const WgmmaMemory<kDim> memory;
  const int warpgroup, thread, lane;  // of the consumers, in the warpgroup, in the warp
  sm90::RingCursor<Kernel::kStages> at;
  int slot = 0;  // of works
  int2 all_see = {};
  float scores[kKeys / 2];
  std::uint32_t weights[kKeys / 16][4];
  float out[kDim / 2];
  float most[2], sum[2], rescale[2];

  __device__ __forceinline__ const WgmmaWork& work() const { return memory.work(slot); }
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
    // Both warpgroups find the same.
    if (!sm90::NamedAny(kGroupBarrier + warpgroup, 128, found != 0)) return;
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
    for (int i = warpgroup; i < Kernel::kPieces * 4; i += Kernel::kWarpgroups) {
      auto* const pair = reinterpret_cast<std::uint32_t*>(values) + thread + i * 128;
      *pair = FiniteOrZero<T>(*pair);
    }
    sm90::FenceAsyncShared();
    sm90::NamedSync(kConsumerBarrier, Kernel::kConsumers);
  }

  /// Whether some query may not see some key of tile `j`, `lost` of whose boxes are not there.
  __device__ __forceinline__ bool IsMasked(int base, unsigned lost) const {
    return lost != 0 || base < all_see.x || base + kKeys > all_see.y;
  }

  /// Weights of the scores, which have come.
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

  /// A row's sum, of which lanes have parts until now.
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
      const float over = 1 / sum[half];
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

  /// Divided outputs of float32, or what the split found.
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
      const float over = whole ? 1 / sum[half] : 1.0f;
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
    // Takes the last turn, which is nobody's.
    if (warpgroup == 0) sm90::NamedSync(kTurnBarrier, Kernel::kConsumers);
  }
};

/// Requires: K and V of T, and what LaunchWgmma sets.
template <class T, int kDim>
__global__ void __launch_bounds__(WgmmaKernel<kDim>::kThreads, 1)
    AttentionWgmma(const __grid_constant__ WgmmaArgs args) {
  using Kernel = WgmmaKernel<kDim>;
  const int thread = static_cast<int>(threadIdx.x);
  extern __shared__ __align__(1024) char swizzled_shared[];
  const WgmmaMemory<kDim> memory{swizzled_shared};
  if (thread == 0) {
    sm90::PrefetchTensorMap(&args.k);
    sm90::PrefetchTensorMap(&args.v);
    memory.ring().InitFull(sm90::FullArrivals());
    memory.ring().InitEmpty(sm90::EmptyArrivals(4 * Kernel::kWarpgroups, 1));
    memory.works().InitFull(128);
    memory.works().InitEmpty(sm90::EmptyArrivals(4 * Kernel::kWarpgroups, 1));
    sm90::BarrierInitFence();
  }
  __syncthreads();
  WaitForPrevious();
  const int role = sm90::WarpUniform(thread / 128);
  if (role == 0) {
    sm90::RegistersDown<Kernel::kProducerRegisters>();
    WgmmaProducer<T, kDim> producer{.args = args, .memory = memory, .thread = thread};
    producer.Run();
  } else {
    sm90::RegistersUp<Kernel::kConsumerRegisters>();
    WgmmaConsumer<T, kDim> consumer{.args = args,
                                    .memory = memory,
                                    .warpgroup = role - 1,
                                    .thread = thread % 128,
                                    .lane = thread % 32};
    consumer.Run();
  }
}

template <class T, int kDim>
cudaError_t LaunchWgmmaOf(const AttentionArgs& given, LaunchStream stream) {
  const AttentionParams& p = given.params;
  WgmmaArgs args;
  args.attention = given;
  args.box = WgmmaBox(given.table == nullptr ? 0 : p.block_size);
  args.boxes = WgmmaKeys(kDim) / args.box;
  const std::int64_t units = TileBlocks(p, given.rows, given.sequences, kWgmmaQueries);
  const std::int64_t all = units * given.plan.tiles.most;
  if (all >= std::int64_t{1} << 31) return cudaErrorInvalidValue;
  args.units = static_cast<int>(units);
  args.group = sm90::Divisor(p.heads / p.kv_heads);
  args.kv_heads = sm90::Divisor(p.kv_heads);
  args.all_units = sm90::Divisor(args.units);
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
  return LaunchShared(&AttentionWgmma<T, kDim>,
                      Blocks(std::min<std::int64_t>(all, given.plan.wgmma_blocks)),
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
