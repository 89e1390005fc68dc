// Latent attention on Hopper's warpgroup products: a block takes 64 queries of one sequence, rows
// and heads together, and part of the keys, 64 at a time, which TMA brings into a ring of shared
// memory. One warpgroup makes weights of the scores of 32 keys; two add up the values, 256 columns
// each. There are two places for weights, so that the scores of
// the next keys are made beside the values of these.
#pragma once

#include <cuda.h>

#include "culet/layout/tma_swizzle.h"
#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/cluster.cuh"
#include "kernels/cuda_ops/latent_attention.cuh"
#include "kernels/cuda_ops/latent_tile.cuh"
#include "sm90/descriptor.h"
#include "sm90/format.h"
#include "sm90/pipeline.cuh"
#include "sm90/sync.cuh"
#include "sm90/tensor_map.h"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::cuda_ops {

struct LatentWgmmaArgs {
  AttentionArgs attention;
  int box = 0, boxes = 0;  ///< keys of a box, boxes of a tile of keys
  CUtensorMap keys;        ///< (576, kv_heads, key_rows)
};

inline constexpr int kLatentStep = 32;  // keys whose weights are made at once

/// What the warpgroups share, in shared memory: none has the registers for it.
struct LatentWork {
  LatentTile of;
  int split, begin, end;
  int tiles, steps;  ///< of kKeys, and of kStep keys
  int2 all_see;      ///< keys of the split that all queries see

  /// Whether a query may not see some key of the step from `base` on.
  __device__ __forceinline__ bool IsMasked(int base) const {
    return base < all_see.x || base + kLatentStep > all_see.y;
  }
};

struct LatentWgmmaKernel {
  static constexpr int kQueries = kLatentWgmmaQueries, kKeys = 64, kThreads = 3 * 128;
  static constexpr int kStep = kLatentStep;
  // A row of 128 bytes holds 64 elements; a tile has the first 64 of all its keys, then the next.
  static constexpr int kRow = 128, kChunk = kKeys * kRow, kChunks = kLatentRow / kRow;
  static constexpr int kStageBytes = kChunks * kChunk, kStages = 2;
  static constexpr int kQueryChunk = kQueries * kRow;
  static constexpr int kColumns = kMostLatentValue / 2;  // of a warpgroup
  // Shared memory: the ring, which holds the sums in the end; queries, as keys; weights, of which a
  // row has those of two steps; what earlier sums are multiplied by, in the order of lanes; the
  // keys that each query sees; the ring's barriers; which warps' scores are spoiled; for each stage
  // the boxes whose keys lie outside the cache; the factors of sums.
  static constexpr int kQueriesAt = kStages * kStageBytes;
  static constexpr int kWeightsAt = kQueriesAt + kChunks * kQueryChunk;
  static constexpr int kRescaleAt = kWeightsAt + kQueries * kKeys * 2;
  static constexpr int kSeenAt = kRescaleAt + 2 * 128 * static_cast<int>(sizeof(float2));
  static constexpr int kBoundsAt = kSeenAt + kQueries * static_cast<int>(sizeof(int2));
  static constexpr int kRingAt = kBoundsAt + kQueries / 32 * static_cast<int>(sizeof(int4));
  static constexpr int kSpoiledAt = kRingAt + static_cast<int>(sizeof(sm90::Ring<kStages>));
  static constexpr int kLostAt = kSpoiledAt + 2 * static_cast<int>(sizeof(int4));
  static constexpr int kFactorsAt = kLostAt + kStages * 4;
  static constexpr int kWorkAt = kFactorsAt + kQueries * 4;
  static constexpr int kShared = kWorkAt + static_cast<int>(sizeof(LatentWork));
  static_assert(kWorkAt % 8 == 0);
  static_assert(kShared <= 232448 && kRingAt % 16 == 0);
  static constexpr int kSumsBytes = kQueries * kLatentSumsRow<kColumns> * 4;
  static_assert(2 * kSumsBytes <= kQueriesAt);
  // The block begins with 168 registers a thread, so there are 3 x 168 for a thread of each
  // warpgroup; multiples of 8.
  static constexpr int kScoresRegisters = 120, kValuesRegisters = 192;
  static_assert(kScoresRegisters + 2 * kValuesRegisters <= 3 * 168);
};

// Named barriers; 0 is the block's.
inline constexpr int kLatentWeightsThere = 1;  // one a place
inline constexpr int kLatentWeightsRead = 3;   // one a place
inline constexpr int kLatentGroup = 5;         // one a warpgroup of values
inline constexpr int kLatentFactorsThere = 7;

/// What lies in a block's shared memory.
struct LatentMemory {
  using Kernel = LatentWgmmaKernel;
  char* start;
  __device__ __forceinline__ LatentWork& work() const {
    return *reinterpret_cast<LatentWork*>(start + Kernel::kWorkAt);
  }
  __device__ __forceinline__ auto& ring() const {
    return *reinterpret_cast<sm90::Ring<Kernel::kStages>*>(start + Kernel::kRingAt);
  }
  __device__ __forceinline__ char* stage(int which) const {
    return start + which * Kernel::kStageBytes;
  }
  __device__ __forceinline__ unsigned& lost(int which) const {
    return reinterpret_cast<unsigned*>(start + Kernel::kLostAt)[which];
  }
  /// The keys that query `i` sees.
  __device__ __forceinline__ int2& seen(int i) const {
    return reinterpret_cast<int2*>(start + Kernel::kSeenAt)[i];
  }
  /// Of each warp of scores whether those of a masked step are spoiled.
  __device__ __forceinline__ int* spoiled(int place) const {
    return reinterpret_cast<int*>(start + Kernel::kSpoiledAt) + place * 4;
  }
  __device__ __forceinline__ float* factors() const {
    return reinterpret_cast<float*>(start + Kernel::kFactorsAt);
  }
  __device__ __forceinline__ float2& rescale(int place, int thread) const {
    return reinterpret_cast<float2*>(start + Kernel::kRescaleAt)[place * 128 + thread];
  }
};

/// The warp that brings keys.
struct LatentLoader {
  using Kernel = LatentWgmmaKernel;
  const LatentWgmmaArgs& args;
  const LatentMemory memory;
  const int own_lane;
  int row = kBeyond;

  __device__ __forceinline__ int Lane() const {
    int lane = own_lane;
    Pin(lane);
    return lane;
  }
  /// Lane i: where box i of tile `next` lies.
  __device__ __forceinline__ void Find(int next) {
    const LatentWork& work = memory.work();
    const int lane = Lane();
    KeyRange range;
    range.sequence = work.of.tile.sequence;
    const int key = work.begin + next * Kernel::kKeys + lane * args.box;
    row = lane < args.boxes && key < work.end ? range.RowOf(args.attention, key) : kBeyond;
  }
  /// Loads tile `next`, which Find has found, into stage `stage` once that is free: its `empty`
  /// barrier has passed phase `parity`.
  __device__ __forceinline__ void Load(int next, int stage, std::uint32_t parity) {
    if (next >= memory.work().tiles) return;
    const int lane = Lane();
    auto& ring = memory.ring();
    sm90::BarrierWait(&ring.empty[stage], parity);
    const unsigned outside = __ballot_sync(kAllLanes, row == -1);
    if (lane == 0) {
      memory.lost(stage) = outside;
      sm90::BarrierArriveExpect(&ring.full[stage], Kernel::kStageBytes);
    }
    __syncwarp();
#pragma unroll 1
    for (int first = 0; first < Kernel::kChunks * args.boxes; first += 32) {
      const int box = (first + lane) / Kernel::kChunks, chunk = (first + lane) % Kernel::kChunks;
      const int of_box = __shfl_sync(kAllLanes, row, box % 32);
      if (box >= args.boxes) continue;
      // Rows outside of the cache read as zeros.
      sm90::TmaLoad3(memory.stage(stage) + chunk * Kernel::kChunk + box * args.box * Kernel::kRow,
                     &args.keys, &ring.full[stage], chunk * 64, memory.work().of.kv_head,
                     of_box < 0 ? -Kernel::kKeys : of_box);
    }
    __syncwarp();
    Find(next + 1);
  }
};

template <class T>
using LatentFormatOf = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, sm90::Bf16, sm90::F16>;

/// The warpgroup of scores. A lane holds rows lane / 4 and lane / 4 + 8 of its warp's 16, and of
/// every eight keys 2 (lane % 4) and the next.
template <class T>
struct LatentScores {
  using Kernel = LatentWgmmaKernel;
  static constexpr int kStep = Kernel::kStep, kParts = kMostLatentKey / 16;
  const LatentWgmmaArgs& args;
  const LatentMemory memory;
  const int own_thread;
  float scores[kStep / 2];
  float most[2], sum[2], rescale[2];

  /// This thread, read anew: what is made of it shall not stay in registers through the loop.
  __device__ __forceinline__ int Thread() const {
    int thread = own_thread;
    Pin(thread);
    return thread;
  }
  __device__ __forceinline__ static int Query(int thread, int half) {
    return thread / 32 * 16 + thread % 32 / 4 + 8 * half;
  }

  /// scores = queries times kStep keys, which begin at `keys`.
  __device__ __forceinline__ void Multiply(std::uint32_t keys) {
    using Product = sm90::Wgmma<LatentFormatOf<T>, kStep>;
    const std::uint64_t from = sm90::WgmmaDescriptor128(keys);
    const std::uint64_t queries =
        sm90::WgmmaDescriptor128(SharedAddress(memory.start + Kernel::kQueriesAt));
    sm90::FenceRegisters(scores);
    sm90::WgmmaFence();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const unsigned inside = part % 4 * sm90::kWgmmaKBytes;
      const std::uint64_t a =
          queries + sm90::WgmmaDescriptorStep(part / 4 * Kernel::kQueryChunk + inside);
      const std::uint64_t b = from + sm90::WgmmaDescriptorStep(part / 4 * Kernel::kChunk + inside);
      if (part == 0) {
        Product::template Ss<false>(scores, a, b);
      } else {
        Product::template Ss<true>(scores, a, b);
      }
    }
    sm90::WgmmaCommit();
    sm90::WgmmaWait<0>();
    sm90::FenceRegisters(scores);
  }

  /// Masks the scores of a step's keys, which are those of their tile from `first` on: NaN for keys
  /// outside the cache (boxes in `lost`), kNoKey for keys that a query does not see. A NaN or an
  /// infinity in a key is in its scores, too: a query that sees it gets NaN, and of the others a
  /// weight of zero would not undo its value (spoiled).
  __device__ __forceinline__ void Mask(int base, int first, unsigned lost) {
    const int thread = Thread(), lane = thread % 32;
    bool spoiled = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int2 see = memory.seen(Query(thread, half));
      const int low = see.x - base - lane % 4 * 2, high = see.y - base - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n) {
        // A box is a multiple of eight keys.
        const bool is_lost = lost != 0 && (lost >> ((first + 8 * n) / args.box) & 1) != 0;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          const int key = 8 * n + i;
          const bool finite = IsFinite(score);
          spoiled = spoiled || !finite;
          if (is_lost || !finite) score = NotANumber();
          if (key < low || key >= high) score = kNoKey;
        }
      }
    }
    spoiled = __any_sync(kAllLanes, spoiled) != 0;
    if (lane == 0) memory.spoiled(first / kStep)[thread / 32] = spoiled;
  }

  /// Turns scores into weights; `rescale` is the factor of all earlier sums, mostly 1: a maximum
  /// that grew by little stays, and weights are at most 2^kSlack.
  __device__ __forceinline__ void Weigh() {
    constexpr float kSlack = 6;
    const float scale = args.attention.log2_scale;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = most[half];
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n) {
        highest = fmaxf(highest, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
      }
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 2));
      if (most[half] != kNoKey && (highest - most[half]) * scale <= kSlack) highest = most[half];
      // Without a key yet there is nothing to scale, and no difference of infinities.
      const float base = highest == kNoKey ? 0.0f : highest * scale;
      rescale[half] = highest == most[half] ? 1.0f : FastExp2(fmaf(most[half], scale, -base));
      most[half] = highest;
      float total = 0;
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n) {
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

  /// Leaves the weights in place `place`.
  __device__ __forceinline__ void StoreWeights(int place) {
    const int thread = Thread(), lane = thread % 32;
    // Of the swizzled rows of TmaOffset128.
    char* const to =
        memory.start + Kernel::kWeightsAt + Query(thread, 0) * Kernel::kRow + lane % 4 * 4;
    const int piece = (place * (kStep / 8) ^ lane / 4) * 16;
#pragma unroll
    for (int i = 0; i < kStep / 4; ++i) {
      const int n = i / 2, half = i % 2;
      *reinterpret_cast<std::uint32_t*>(to + half * 8 * Kernel::kRow + (piece ^ n * 16)) =
          PackPair<T>(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]);
    }
    memory.rescale(place, thread) = make_float2(rescale[0], rescale[1]);
    sm90::FenceAsyncShared();
  }

  __device__ __forceinline__ void Run() {
    most[0] = most[1] = kNoKey;
    sum[0] = sum[1] = 0;
    sm90::RingCursor<Kernel::kStages> at;
#pragma unroll 1
    for (int i = 0; i < memory.work().steps; ++i) {
      const int place = i % 2, base = memory.work().begin + i * kStep;
      if (place == 0) memory.ring().WaitFull(at);
      Multiply(SharedAddress(memory.stage(at.stage)) +
               static_cast<std::uint32_t>(place * kStep * Kernel::kRow));
      const unsigned lost = memory.lost(at.stage);
      if (lost != 0 || memory.work().IsMasked(base)) Mask(base, place * kStep, lost);
      Weigh();
      if (i > 1) sm90::NamedSync(kLatentWeightsRead + place, Kernel::kThreads);
      StoreWeights(place);
      sm90::NamedArrive(kLatentWeightsThere + place, Kernel::kThreads);
      if (place == 1) at.Advance();
    }
    const float scale = args.attention.log2_scale;
    const int thread = Thread(), lane = thread % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = Query(thread, half);
      float total = sum[half];
      total += __shfl_xor_sync(kAllLanes, total, 1);
      total += __shfl_xor_sync(kAllLanes, total, 2);
      const float power = most[half] == kNoKey ? kNoKey : most[half] * scale;
      if (lane % 4 == 0) {
        memory.factors()[query] = FinishLatentQuery(args.attention, memory.work().of, query,
                                                    memory.work().split, power, total);
      }
    }
    sm90::NamedArrive(kLatentFactorsThere, Kernel::kThreads);
  }
};

/// A warpgroup of values: columns from `half` * kColumns on. Lanes hold rows and columns as those
/// of LatentScores hold rows and keys.
template <class T>
struct LatentValues {
  using Kernel = LatentWgmmaKernel;
  static constexpr int kStep = Kernel::kStep, kColumns = Kernel::kColumns;
  const LatentWgmmaArgs& args;
  const LatentMemory memory;
  const int half, own_thread;
  float out[kColumns / 2];

  /// As LatentScores::Thread.
  __device__ __forceinline__ int Thread() const {
    int thread = own_thread;
    Pin(thread);
    return thread;
  }
  /// This warpgroup's columns of a step's keys.
  __device__ __forceinline__ char* values(int which, int place) const {
    return memory.stage(which) + half * (kColumns / 64) * Kernel::kChunk +
           place * kStep * Kernel::kRow;
  }

  /// Zeros for infinities and NaN in this warpgroup's columns of a step's keys.
  __device__ __forceinline__ void ClearValues(char* tile) {
    constexpr int kWords = kStep * Kernel::kRow / 4;  // of a chunk
#pragma unroll 1
    for (int i = Thread(); i < kColumns / 64 * kWords; i += 128) {
      auto* const pair =
          reinterpret_cast<std::uint32_t*>(tile + i / kWords * Kernel::kChunk) + i % kWords;
      *pair = FiniteOrZero<T>(*pair);
    }
    sm90::FenceAsyncShared();
    sm90::NamedSync(kLatentGroup + half, 128);
  }

  __device__ __forceinline__ void Run(LatentLoader& loader) {
    const bool loads = half == 0 && own_thread < 32;
#pragma unroll
    for (float& value : out) value = 0;
    const std::uint64_t weights =
        sm90::WgmmaDescriptor128(SharedAddress(memory.start + Kernel::kWeightsAt));
    sm90::RingCursor<Kernel::kStages> at;
#pragma unroll 1
    for (int i = 0; i < memory.work().steps; ++i) {
      const int place = i % 2, base = memory.work().begin + i * kStep;
      sm90::NamedSync(kLatentWeightsThere + place, Kernel::kThreads);
      const float2 rescale = memory.rescale(place, Thread());
      if (__any_sync(kAllLanes, rescale.x != 1 || rescale.y != 1)) {
#pragma unroll
        for (int j = 0; j < kColumns / 2; ++j) out[j] *= j / 2 % 2 == 0 ? rescale.x : rescale.y;
      }
      if (place == 0) memory.ring().WaitFull(at);
      char* const tile = values(at.stage, place);
      if (memory.work().IsMasked(base)) {
        const int4 spoiled = *reinterpret_cast<const int4*>(memory.spoiled(place));
        if ((spoiled.x | spoiled.y | spoiled.z | spoiled.w) != 0) ClearValues(tile);
      }
      using Product = sm90::WgmmaSharedTransposedB<LatentFormatOf<T>, kColumns>;
      const std::uint64_t a =
          weights + sm90::WgmmaDescriptorStep(static_cast<std::uint32_t>(place * kStep * 2));
      const std::uint64_t v =
          sm90::WgmmaDescriptorTransposed128(SharedAddress(tile), Kernel::kChunk);
      sm90::FenceRegisters(out);
      sm90::WgmmaFence();
#pragma unroll
      for (int part = 0; part < kStep / 16; ++part) {
        Product::template Ss<true>(out, a + sm90::WgmmaDescriptorStep(part * sm90::kWgmmaKBytes),
                                   v + sm90::WgmmaDescriptorStep(part * 16 * Kernel::kRow));
      }
      sm90::WgmmaCommit();
      sm90::WgmmaWait<0>();
      sm90::FenceRegisters(out);
      if (i + 2 < memory.work().steps)
        sm90::NamedArrive(kLatentWeightsRead + place, Kernel::kThreads);
      if (place == 0) continue;
      memory.ring().template Release<1>(at.stage, own_thread % 32);
      if (loads) loader.Load(i / 2 + Kernel::kStages, at.stage, at.parity);
      at.Advance();
    }
    sm90::NamedSync(kLatentFactorsThere, Kernel::kThreads);  // stages have been used, too
    constexpr int kRow = kLatentSumsRow<kColumns>;
    const int thread = Thread(), lane = thread % 32;
    float* const sums = reinterpret_cast<float*>(memory.start + half * Kernel::kSumsBytes);
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      const float pair[2] = {out[2 * i], out[2 * i + 1]};
      Store(pair, sums + LatentScores<T>::Query(thread, i % 2) * kRow + i / 2 * 8 + lane % 4 * 2);
    }
    sm90::NamedSync(kLatentGroup + half, 128);
    StoreLatentSums<kColumns, 128>(args.attention, memory.work().of, memory.work().split, sums,
                                   memory.factors(), half * kColumns, thread);
  }
};

/// Requires: keys of T, and what LaunchLatentWgmma sets.
template <class T>
__global__ void __launch_bounds__(LatentWgmmaKernel::kThreads, 1)
    LatentWgmma(const __grid_constant__ LatentWgmmaArgs args) {
  using Kernel = LatentWgmmaKernel;
  const AttentionArgs& attention = args.attention;
  const AttentionParams& p = attention.params;
  const int thread = static_cast<int>(threadIdx.x);
  extern __shared__ __align__(1024) char swizzled_shared[];
  const LatentMemory memory{swizzled_shared};
  if (thread == 0) {
    sm90::PrefetchTensorMap(&args.keys);
    memory.ring().InitFull(sm90::FullArrivals());
    memory.ring().InitEmpty(sm90::EmptyArrivals(2 * 4, 1));
    sm90::BarrierInitFence();
  }
  __syncthreads();
  BeginLatent(attention);
  LatentWork work;
  work.of.group = p.heads / p.kv_heads;
  work.of.kv_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.kv_heads));
  work.of.tile = Tile(attention, static_cast<int>(blockIdx.x / static_cast<unsigned>(p.kv_heads)),
                      work.of.group, Kernel::kQueries);
  if (work.of.tile.count == 0) return AwaitLatentInputs(attention);
  work.split = static_cast<int>(blockIdx.y);
  int2* const seen = &memory.seen(0);
  const SeenKeys found = FindSeenKeys<Kernel::kQueries>(
      attention, work.of.tile, work.of.group, seen,
      reinterpret_cast<int4*>(memory.start + Kernel::kBoundsAt), [] { __syncthreads(); });
  // Tiles begin at multiples of a box.
  const SplitKeys keys(attention.plan.tiles, min(found.first, found.last) & -kMostBox, found.last);
  if (keys.idle()) {
    AwaitLatentInputs(attention);
    StoreNoKeys(attention, work.of, work.split);
    return;
  }
  work.begin = keys.begin;
  work.end = keys.end;
  work.tiles = (keys.end - keys.begin + Kernel::kKeys - 1) / Kernel::kKeys;
  work.steps = (keys.end - keys.begin + Kernel::kStep - 1) / Kernel::kStep;
  work.all_see = make_int2(found.all_first, min(found.all_last, keys.end));
  if (thread < Kernel::kQueries) seen[thread].y = min(seen[thread].y, keys.end);
  if (thread == 0) memory.work() = work;
  __syncthreads();

  LatentLoader loader{.args = args, .memory = memory, .own_lane = thread % 32};
  const int role = sm90::WarpUniform(thread / 128);
  if (role == 1 && thread % 128 < 32) {
    loader.Find(0);
    const int old = OldLatentKeys(attention, found.last);
    bool waits = true;
#pragma unroll 1
    for (int i = 0; i < Kernel::kStages; ++i) {
      if (waits && keys.begin + (i + 1) * Kernel::kKeys > old) {
        AwaitLatentInputs(attention);
        waits = false;
      }
      loader.Load(i, i, 1);
    }
  }
  AwaitLatentInputs(attention);
  // Queries, rounded to T.
  const bool as_is = std::is_same_v<T, __nv_bfloat16> && attention.q_type == DataType::kBfloat16;
#pragma unroll 4
  for (int i = thread; i < Kernel::kQueries * (kLatentRow / 16); i += Kernel::kThreads) {
    const int query = i / (kLatentRow / 16), piece = i % (kLatentRow / 16);
    const bool there = query < work.of.tile.count;
    const std::int64_t element =
        there ? (work.of.row(query) * p.heads + work.of.head(query)) * std::int64_t{kMostLatentKey}
              : 0;
    char* const to =
        memory.start + Kernel::kQueriesAt + piece / 8 * Kernel::kQueryChunk +
        TmaOffset128(static_cast<unsigned>(query), static_cast<unsigned>(piece % 8 * 16));
    if (as_is) {
      CopyAsync16(SharedAddress(to), static_cast<const T*>(attention.q) + element + piece * 8,
                  there ? 16 : 0);
    } else {
      *reinterpret_cast<uint4*>(to) =
          there ? LoadQuery<T>(attention, element, piece * 8) : make_uint4(0, 0, 0, 0);
    }
  }
  CommitCopies();
  AwaitCopies<0>();
  sm90::FenceAsyncShared();
  __syncthreads();
  if (role == 0) {
    sm90::RegistersDown<Kernel::kScoresRegisters>();
    LatentScores<T> scores{.args = args, .memory = memory, .own_thread = thread};
    scores.Run();
  } else {
    sm90::RegistersUp<Kernel::kValuesRegisters>();
    LatentValues<T> values{
        .args = args, .memory = memory, .half = role - 1, .own_thread = thread % 128};
    values.Run(loader);
  }
}

template <class T>
cudaError_t LaunchLatentWgmma(const AttentionArgs& given, LaunchStream stream) {
  const AttentionParams& p = given.params;
  LatentWgmmaArgs args;
  args.attention = given;
  args.box = WgmmaBox(given.table == nullptr ? 0 : p.block_size);
  args.boxes = LatentWgmmaKernel::kKeys / args.box;
  sm90::TensorMapPlan map;
  map.inner = static_cast<std::uint64_t>(p.head_dim);
  map.outer = static_cast<std::uint64_t>(p.kv_heads);
  map.rank = 3;
  map.depth = static_cast<std::uint64_t>(given.key_rows);
  map.pitch_bytes = map.inner * 2;
  map.depth_bytes = map.outer * map.pitch_bytes;
  map.box_inner = 64;
  map.box_outer = 1;
  map.box_depth = static_cast<std::uint32_t>(args.box);
  map.element_bytes = 2;
  if (!sm90::EncodeTensorMap(map, given.k, &args.keys)) return cudaErrorInvalidValue;
  return LaunchShared(&LatentWgmma<T>,
                      Blocks(TileBlocks(p, given.rows, given.sequences, kLatentWgmmaQueries),
                             given.plan.tiles.most),
                      LatentWgmmaKernel::kThreads, LatentWgmmaKernel::kShared, stream, args);
}

template <class T>
cudaError_t AllowLatentWgmma() {
  return AllowShared(&LatentWgmma<T>, LatentWgmmaKernel::kShared);
}

}  // namespace culet::cuda_ops
