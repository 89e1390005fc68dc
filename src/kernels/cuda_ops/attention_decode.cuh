// Attention of single rows on tensor cores: a block takes up to 16 query heads of one key-value
// head and part of the keys that the row sees. Each warp streams keys of its own through its own
// shared memory, so that nobody waits for another until the end; then the blocks of a cluster merge
// the sums of all their warps, each a slice of the dimensions, and the last cluster of a row merges
// those of the clusters. The queries are there already, or the block makes them of the product of
// q, k and v, and with them the row's own key and value (attention_heads.cuh).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "kernels/cuda_ops/attention_heads.cuh"
#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/attention_splits.cuh"
#include "kernels/cuda_ops/cluster.cuh"

namespace culet::cuda_ops {

/// What a warp leaves for the others in the place of its keys: of each head kDim sums of values,
/// and its maximum and sum.
template <int kDim>
struct WarpSums {
  static constexpr int kRow = kDim + 8;  // neighbouring heads in different banks
  float values[16][kRow];
  float weights[16][2];
};

/// Of a cache of Cache elements.
template <class Cache, int kDim>
struct DecodeKernel {
  using T = MathOf<Cache>;
  static constexpr bool kCodes = kAreCodes<Cache>;
  static constexpr int kWarps = kDim <= 128 ? 4 : 2, kThreads = 32 * kWarps;
  static constexpr int kHeads = 16, kKeys = 16, kMostStages = 3;
  static constexpr int kRow = kSharedRow<kDim>, kChunks = kDim / 8;
  // Keys and values lie as in the cache: rows of kKeyChunks pieces of kWide elements.
  using Warp = WarpAttention<T, kDim, 1, kKeys>;
  using KeyRows = std::conditional_t<kCodes, typename Warp::CodeRows, typename Warp::Rows>;
  static constexpr int kKeyRow = KeyRows::kRow;
  static constexpr int kWide = 16 / static_cast<int>(sizeof(Cache)), kKeyChunks = kDim / kWide;
  static constexpr int kStage = 2 * kKeys * kKeyRow;  // keys, then values
  static constexpr int kRing = kWarps * kStage;  // of one stage; all of them are behind the rest
  static constexpr int kSums = (static_cast<int>(sizeof(WarpSums<kDim>)) + 127) / 128 * 128;
  /// Bytes of a warp's stages, or of its sums if they are more.
  CULET_HOST_DEVICE static constexpr int RingOfWarp(int stages) {
    return stages * kStage > kSums ? stages * kStage : kSums;
  }
  static constexpr int kQueriesAt = 0, kTableAt = kQueriesAt + kHeads * kRow;
  // Where heads are made: sines and cosines, gammas of q and k, and the row's own key and value.
  static constexpr int kTurnsAt = kTableAt + 4 * kThreads, kGammasAt = kTurnsAt + 4 * kDim;
  static constexpr int kOwnAt = kGammasAt + 8 * kDim;
  template <bool kMakesHeads>
  static constexpr int kRingAt = kMakesHeads ? kOwnAt + 2 * kKeyRow : kTurnsAt;
  template <bool kMakesHeads>
  CULET_HOST_DEVICE static constexpr int Shared(int stages) {
    return kRingAt<kMakesHeads> + kWarps * RingOfWarp(stages);
  }
  static_assert(kRingAt<false> % KeyRows::kAlign == 0 && kRingAt<true> % KeyRows::kAlign == 0);
  static constexpr int kRound = kWarps * kKeys;
  // The last block of a row has parts of items on their way at once, in the place of all the rest.
  static constexpr int kMostAtOnce = 32;
  static_assert(Shared<false>(2) >= kHeads * SplitWeights::kBytesOfHead + 16 * kThreads);
};

/// Four sums of values, their maximum and their sum of weights.
struct Weighted {
  float highest = kNoKey, total = 0, value[4] = {};
};

/// Four dimensions of head `head` of all warps of the cluster's block `rank`, in their order. The
/// warps' sums lie `apart` bytes from each other.
template <class Kernel, class Sums>
__device__ __forceinline__ Weighted MergeWarps(std::uint32_t shared, std::uint32_t apart, int rank,
                                               int head, int dim) {
  float weights[Kernel::kWarps][2], values[Kernel::kWarps][4];
#pragma unroll
  for (int w = 0; w < Kernel::kWarps; ++w) {
    const std::uint32_t sums = shared + static_cast<std::uint32_t>(w) * apart;
    LoadOfCluster(sums + static_cast<std::uint32_t>(offsetof(Sums, weights) + 8 * head), rank,
                  weights[w]);
    LoadOfCluster(sums + static_cast<std::uint32_t>(4 * (head * Sums::kRow + dim)), rank,
                  values[w]);
  }
  Weighted all;
#pragma unroll
  for (int w = 0; w < Kernel::kWarps; ++w) all.highest = fmaxf(all.highest, weights[w][0]);
#pragma unroll
  for (int w = 0; w < Kernel::kWarps; ++w) {
    const float weight = Rescale(weights[w][0], all.highest);
    all.total = fmaf(weights[w][1], weight, all.total);
#pragma unroll
    for (int d = 0; d < 4; ++d) all.value[d] = fmaf(values[w][d], weight, all.value[d]);
  }
  return all;
}

/// The sum over `count` neighbouring lanes, a power of two: the same bits in all of them.
__device__ __forceinline__ void MergeLanes(Weighted& all, int count) {
  float highest = all.highest;
  for (int offset = count / 2; offset > 0; offset /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, offset));
  }
  const float weight = Rescale(all.highest, highest);
  all.highest = highest;
  all.total *= weight;
#pragma unroll
  for (int d = 0; d < 4; ++d) all.value[d] *= weight;
  for (int offset = count / 2; offset > 0; offset /= 2) {
    all.total += __shfl_xor_sync(kAllLanes, all.total, offset);
#pragma unroll
    for (int d = 0; d < 4; ++d) all.value[d] += __shfl_xor_sync(kAllLanes, all.value[d], offset);
  }
}

/// What a lane copies of the tiles of its warp, keys and values: one piece of 16 bytes of every
/// kAtOnce-th key, the same of all tiles.
template <class Kernel>
class KeyCopies {
 public:
  __device__ KeyCopies(const AttentionArgs& args, int kv_head) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    constexpr std::size_t kSize = 16 / Kernel::kWide;
    const AttentionParams& p = args.params;
    key_ = lane / kSlots;
    kv_head_ = kv_head;
    const int chunk = lane % kSlots;
    there_ = chunk * Kernel::kWide < p.head_dim;
    bytes_ = static_cast<unsigned>(kSize) * static_cast<unsigned>(p.kv_heads * p.head_dim);
    const std::size_t at =
        there_ ? kSize * static_cast<std::size_t>(kv_head * p.head_dim + chunk * Kernel::kWide) : 0;
    k_ = static_cast<const char*>(args.k) + at;
    v_ = static_cast<const char*>(args.v) + at;
    to_ = static_cast<std::uint32_t>(Rows::Offset(key_, chunk));
    spare_ = chunk >= Kernel::kKeyChunks;
  }

  /// A tile on its way to the second-level cache. Lanes i and i + 16 know the row of key i.
  __device__ __forceinline__ void Prefetch(const AttentionArgs& args, int row) const {
    static_assert(Kernel::kKeys == 16);
    if (row < 0) return;
    const void* const from = threadIdx.x % 32 < 16 ? args.k : args.v;
    const int bytes = args.params.head_dim * (16 / Kernel::kWide);
    PrefetchBytes(static_cast<const char*>(from) +
                      std::size_t{bytes_} * static_cast<unsigned>(row) +
                      static_cast<std::size_t>(kv_head_ * bytes),
                  bytes);
  }

  /// Tile `rows` on its way to `stage`. Lane i knows the row of key i.
  __device__ __forceinline__ void Load(int rows, std::uint32_t stage) const {
    const std::uint32_t to = stage + to_;
#pragma unroll
    for (int i = 0; i < Kernel::kKeys / kAtOnce; ++i) {
      const int row = __shfl_sync(kAllLanes, rows, key_ + i * kAtOnce);
      if (kSlots != Kernel::kKeyChunks && spare_) continue;
      const std::size_t from = std::size_t{bytes_} * static_cast<unsigned>(max(row, 0));
      const int bytes = row >= 0 && there_ ? 16 : 0;
      const std::uint32_t at = Rows::Below(to, i * kAtOnce);
      CopyAsync16(at, k_ + from, bytes);
      CopyAsync16(at + Kernel::kKeys * Kernel::kKeyRow, v_ + from, bytes);
    }
  }

 private:
  static constexpr int kSlots = std::bit_ceil(static_cast<unsigned>(Kernel::kKeyChunks));
  static constexpr int kAtOnce = 32 / kSlots;  // keys
  using Rows = typename Kernel::KeyRows;
  const char* k_;
  const char* v_;
  unsigned bytes_;  // of a row of all heads
  std::uint32_t to_;
  int key_, kv_head_;
  bool there_, spare_;
};

/// Queries of all warps from `element` on; those beyond the group are zeros. Queries that need no
/// rounding are copied asynchronously.
template <class T, class Kernel>
__device__ __forceinline__ void LoadQueries(const AttentionArgs& args, std::int64_t element,
                                            int heads) {
  constexpr int kPieces = Kernel::kHeads * Kernel::kChunks;
  const bool copied = std::is_same_v<T, __nv_bfloat16> && args.q_type == DataType::kBfloat16;
#pragma unroll 1
  for (int first = 0; first < kPieces; first += Kernel::kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    if (kPieces % Kernel::kThreads != 0 && i >= kPieces) break;
    const int head = i / Kernel::kChunks, dim = i % Kernel::kChunks * 8;
    const int at = Kernel::kQueriesAt + head * Kernel::kRow;
    const std::int64_t from = element + head * args.params.head_dim;
    if (copied) {
      const bool there = head < heads && dim < args.params.head_dim;
      CopyAsync16(SharedAddress(DynamicShared()) + static_cast<std::uint32_t>(at + dim * 2),
                  static_cast<const char*>(args.q) + (there ? 2 * (from + dim) : 0),
                  there ? 16 : 0);
    } else {
      StoreQuery<Kernel::kCodes>(
          DynamicShared() + at, dim,
          head < heads ? LoadQuery<T>(args, from, dim) : make_uint4(0, 0, 0, 0));
    }
  }
}

/// Puts the row's own key and value at their place among the keys of a stage.
template <class Kernel>
__device__ __forceinline__ void PlaceOwn(std::uint32_t stage, int key) {
  char* const shared = DynamicShared();
  const std::uint32_t to = stage - SharedAddress(shared);
  for (int i = static_cast<int>(threadIdx.x) % 32; i < 2 * Kernel::kKeyChunks; i += 32) {
    const int is_value = i / Kernel::kKeyChunks, chunk = i % Kernel::kKeyChunks;
    *reinterpret_cast<uint4*>(shared + to + is_value * Kernel::kKeys * Kernel::kKeyRow +
                              Kernel::KeyRows::Offset(key, chunk)) =
        *reinterpret_cast<const uint4*>(shared + Kernel::kOwnAt + is_value * Kernel::kKeyRow +
                                        chunk * 16);
  }
}

/// Requires: K and V of Cache in whole vectors.
template <class Cache, int kDim, bool kMakesHeads>
__global__ void __launch_bounds__(DecodeKernel<Cache, kDim>::kThreads, 3)
    AttentionDecode(const __grid_constant__ DecodeArgs<kMakesHeads> given) {
  using Kernel = DecodeKernel<Cache, kDim>;
  using T = typename Kernel::T;
  using Warp = typename Kernel::Warp;
  constexpr int kHeads = Kernel::kHeads, kKeys = Kernel::kKeys;
  constexpr int kMostStages = Kernel::kMostStages;
  static_assert(kMostStages == 3);
  const AttentionArgs& args = given.attention;
  const AttentionParams& p = args.params;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int group = p.heads / p.kv_heads, chunks = (group + kHeads - 1) / kHeads;
  const int pieces = p.kv_heads * chunks;
  int in_units = static_cast<int>(blockIdx.x / static_cast<unsigned>(pieces));
  const int piece = static_cast<int>(blockIdx.x % static_cast<unsigned>(pieces));
  int kv_head = piece / chunks, first_head = kv_head * group + piece % chunks * kHeads;
  int heads = min(kHeads, group - piece % chunks * kHeads);
  // What this thread merges at the end: four dimensions of a head, of one of the cluster's blocks.
  const int cluster = args.plan.decode.cluster, shift = __ffs(cluster) - 1;
  const int rank = static_cast<int>(blockIdx.y) & (cluster - 1);
  const int parts = p.head_dim / 4, share = (heads * parts + cluster - 1) >> shift;
  const int begin_item = rank * share, end_item = min(begin_item + share, heads * parts);
  const int from = thread & (cluster - 1), first_item = begin_item + (thread >> shift);
  int h = first_item / parts, dim = (first_item - h * parts) * 4;
  // Divisions take as long as a load: the kernel before may still run meanwhile.
  Pin(h);
  Pin(dim);
  Pin(in_units);
  Pin(kv_head);
  Pin(first_head);
  Pin(heads);
  const std::int64_t unit = in_units;
  // Inputs that no earlier kernel writes are read at once, keys among them.
  const int stages = args.plan.decode.stages;
  if (args.early) {
    LetNextBegin();
  } else {
    WaitForPrevious();
  }

  // Prefetches the first blocks of a sequence into L1 while the visible keys are being determined.
  // Loads beyond the copies are not used.
  if (args.table != nullptr && unit < args.sequences && thread < args.table_cols) {
    CopyAsync4(
        SharedAddress(DynamicShared()) + static_cast<std::uint32_t>(Kernel::kTableAt + 4 * thread),
        args.table + unit * args.table_cols + thread);
  }
  // A unit is a row, or a sequence with one row; the tile kernel takes the others.
  std::int64_t row = unit;
  bool skipped = false;
  if (args.plan.units_are_sequences) {
    // Bounds as the tile kernel computes them, so that exactly one of the two takes the row.
    const auto bound = [&](std::int64_t i) {
      return min(max(args.starts[i], 0), static_cast<int>(args.rows));
    };
    row = bound(unit);
    skipped = bound(unit + 1) - row != 1;
    if (skipped) row = 0;
  }
  const KeyRange range(args, row, unit);
  const SplitKeys keys(args.plan.decode, static_cast<int>(range.first),
                       static_cast<int>(range.last));
  if (skipped || keys.idle(cluster)) {
    AwaitCopies<0>();
    if (args.early) WaitForPrevious();
    return;
  }

  const auto ring_of_warp = static_cast<std::uint32_t>(Kernel::RingOfWarp(stages));
  const std::uint32_t rings = SharedAddress(DynamicShared()) +
                              static_cast<std::uint32_t>(Kernel::template kRingAt<kMakesHeads>);
  const std::uint32_t ring = rings + static_cast<std::uint32_t>(warp) * ring_of_warp;
  OwnRow own;
  if constexpr (kMakesHeads) {
    own = OwnRow(given, range, row, static_cast<int>(blockIdx.y) == keys.splits - 1);
  }
  const auto row_of = [&](int base) {
    const int key = base + lane % kKeys;
    return key < keys.end && key != own.key ? range.RowOf(args, key) : kBeyond;
  };
  const int begin = keys.begin + warp * kKeys;
  bool missing = false;
  const KeyCopies<Kernel> copies(args, kv_head);
  const auto load = [&](int rows, int stage) {
    missing |= rows == -1;
    copies.Load(rows, ring + static_cast<std::uint32_t>(stage * Kernel::kStage));
  };
  int first_rows[kMostStages];
#pragma unroll
  for (int s = 0; s < kMostStages; ++s) first_rows[s] = row_of(begin + s * Kernel::kRound);
  // The key at the row's position may be written by the preceding kernel.
  const int old = args.early && !kMakesHeads ? static_cast<int>(range.OldKeys()) : keys.end;
  const auto first_row = [&](int s) {
    return s == 0 ? first_rows[0] : s == 1 ? first_rows[1] : first_rows[2];
  };
  const auto is_old = [&](int base) { return min(base + kKeys, keys.end) <= old; };
  // The oldest stage's keys have arrived.
  const auto await_stage = [&] {
    if (stages == kMostStages) {
      AwaitCopies<kMostStages - 1>();
    } else {
      AwaitCopies<kMostStages - 2>();
    }
  };
  // A tile with that key is loaded after the wait; its other keys are prefetched before.
#pragma unroll 1
  for (int s = 0; s < stages; ++s) {
    const int base = begin + s * Kernel::kRound;
    if (base < keys.end) {
      if (is_old(base)) {
        load(first_row(s), s);
      } else {
        copies.Prefetch(args, first_row(s));
      }
    }
    CommitCopies();
  }
  // Keys of blocks that are not resident yet are prefetched into L2.
  const int ahead = args.early ? args.plan.decode.ahead : 0;
  if (static_cast<int>(blockIdx.y) < ahead) {
#pragma unroll 1
    for (int other = static_cast<int>(blockIdx.y) + ahead; other < keys.splits; other += ahead) {
      const SplitKeys theirs(args.plan.decode, static_cast<int>(range.first),
                             static_cast<int>(range.last), other);
#pragma unroll 1
      for (int base = theirs.begin + warp * kKeys; base < theirs.end; base += Kernel::kRound) {
        const int key = base + lane % kKeys;
        copies.Prefetch(args, key < theirs.end ? range.RowOf(args, key) : kBeyond);
      }
    }
  }
  int rows = row_of(begin + stages * Kernel::kRound);
  if constexpr (kMakesHeads) MakeFactors<Kernel>(given.heads, row, heads);
  if (args.early) WaitForPrevious();
  if constexpr (kMakesHeads) {
    MakeHeads<Cache, Kernel>(given.heads, row, kv_head, first_head, heads, own);
  } else {
    LoadQueries<T, Kernel>(args, (row * p.heads + first_head) * p.head_dim, heads);
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      const int base = begin + s * Kernel::kRound;
      if (base < keys.end && !is_old(base)) load(first_row(s), s);
      CommitCopies();
    }
  }

  await_stage();
  __syncthreads();
  const std::uint32_t q_at =
      SharedAddress(DynamicShared()) +
      static_cast<std::uint32_t>(Kernel::kQueriesAt + lane % 16 * Kernel::kRow + lane / 16 * 16);
  const auto queries = [&](int, int step, std::uint32_t(&a)[4]) {
    LoadMatrices(q_at + static_cast<std::uint32_t>(step * 32), a);
  };

  const float given_scale = args.log2_scale * KeyScale<Cache>(args, kv_head);
  Warp sums;
  int stage = 0;
#pragma unroll 1
  for (int base = begin; base < keys.end; base += Kernel::kRound) {
    await_stage();
    __syncwarp();
    const std::uint32_t k = ring + static_cast<std::uint32_t>(stage * Kernel::kStage);
    if constexpr (kMakesHeads) {
      if (own.key >= base && own.key < base + kKeys) {
        PlaceOwn<Kernel>(k, own.key - base);
        __syncwarp();
      }
    }
    typename Warp::Scores scores;
    if constexpr (Kernel::kCodes) {
      Warp::MultiplyCodes(queries, k, scores);
    } else {
      Warp::Multiply(queries, k, scores);
    }
    const float scale = Warp::Cap(scores, given_scale, args.log2_cap);
    const int left = keys.end - base - lane % 4 * 2;
    if (keys.end - base < kKeys) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (8 * n + i % 2 >= left) scores[0][n][i] = kNoKey;
        }
      }
    }
    sums.Softmax(scores, scale);
    if constexpr (Kernel::kCodes) {
      sums.AccumulateCodes(scores, k + kKeys * Kernel::kKeyRow);
    } else {
      sums.Accumulate(scores, k + kKeys * Kernel::kKeyRow);
    }
    __syncwarp();
    if (base + stages * Kernel::kRound < keys.end) load(rows, stage);
    CommitCopies();
    rows = row_of(base + (stages + 1) * Kernel::kRound);
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  sums.Finish(args.log2_cap > 0 ? 1 : given_scale);

  // No other warp uses the memory of this warp's keys.
  AwaitCopies<0>();
  missing = __any_sync(kAllLanes, missing) != 0;
  using Sums = WarpSums<kDim>;
  Sums& shared =
      *reinterpret_cast<Sums*>(DynamicShared() + (ring - SharedAddress(DynamicShared())));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = lane / 4 + 8 * half;
    if (head >= heads) continue;
    if constexpr (Kernel::kCodes) {
      const float of_values = ValueScale<Cache>(args, kv_head);
#pragma unroll
      for (int n = 0; n < kDim / 8; n += 2) {
        const float(&even)[4] = sums.out[0][n], (&odd)[4] = sums.out[0][n + 1];
        const int at = 2 * half;
        const float four[4] = {even[at] * of_values, odd[at] * of_values, even[at + 1] * of_values,
                               odd[at + 1] * of_values};
        Store(four, &shared.values[head][8 * n + lane % 4 * 4]);
      }
    } else {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const float pair[2] = {sums.out[0][n][2 * half], sums.out[0][n][2 * half + 1]};
        Store(pair, &shared.values[head][8 * n + lane % 4 * 2]);
      }
    }
    if (lane % 4 == 0) {
      shared.weights[head][0] = sums.most[0][half];
      shared.weights[head][1] = missing ? NotANumber() : sums.sum[0][half];
    }
  }
  __syncwarp();
  MeetCluster(cluster);
  if constexpr (kMakesHeads) {
    if (piece % chunks == 0) StoreOwn<Cache, Kernel>(given.heads, own, kv_head);
  }

  // Four dimensions of a head for each group of `cluster` lanes; each lane takes one block's sums.
  const int first_split = static_cast<int>(blockIdx.y) - rank;
  const std::int64_t units = args.plan.units_are_sequences ? args.sequences : args.rows;
  const int step = Kernel::kThreads >> shift;
#pragma unroll 1
  for (int base = begin_item; base < end_item; base += step, dim += 4 * step) {
    const int item = base + (thread >> shift);
    for (; dim >= p.head_dim; dim -= p.head_dim) ++h;
    Weighted all;
    if (item < end_item && first_split + from < keys.splits) {
      all = MergeWarps<Kernel, Sums>(rings, ring_of_warp, from, h, dim);
    }
    MergeLanes(all, cluster);
    if (from != 0 || item >= end_item) continue;
    if (keys.splits <= cluster) {
      // No key: 0 / 0, the mean of no values.
      const std::int64_t element = (row * p.heads + first_head + h) * p.head_dim + dim;
      const float share_of_one =
          __fdiv_rn(1.0f, WithSink(args, first_head + h, all.highest, all.total));
#pragma unroll
      for (int d = 0; d < 4; ++d) all.value[d] *= share_of_one;
      if (args.out_type == DataType::kFloat32) {
        Store(all.value, static_cast<float*>(args.out) + element);
      } else {
        Store(all.value, static_cast<__nv_bfloat16*>(args.out) + element);
      }
      continue;
    }
    const AttentionPart part(args, units, unit, first_head + h, args.plan.decode.most,
                             static_cast<int>(blockIdx.y));
    Store(all.value, part.values + dim);
    if (dim == 0 || item == begin_item) {
      part.maxima[part.index] = all.highest;
      part.sums[part.index] = all.total;
    }
  }
  __syncwarp();
  LeaveCluster(cluster);
  // A block of the last cluster merges the slices of the blocks of its rank.
  const int clusters = (keys.splits + cluster - 1) >> shift;
  const std::int64_t counter = std::int64_t{blockIdx.x} * cluster + rank;
  if (clusters == 1 || !IsLastSplit(args.counters + counter, clusters)) return;
  // The old contents of shared memory are no longer needed.
  const SplitWeights weights(reinterpret_cast<float*>(DynamicShared()), clusters);
  const auto first_part = [&](int head) {
    return AttentionPart(args, units, unit, first_head + head, args.plan.decode.most, rank);
  };
  // A thread's first values are in flight while the weights are computed. Parts lie a power of two
  // of items apart: the number of items or of threads, whichever is smaller.
  const int weight_bytes = heads * SplitWeights::kBytesOfHead;
  const int items = max(min(end_item - begin_item, Kernel::kThreads), 1);
  const int part_shift = 36 - __clz(items - 1);
  const int at_once =
      min(Kernel::kMostAtOnce,
          (Kernel::template Shared<kMakesHeads>(stages) - weight_bytes) >> part_shift);
  const char* const mine = DynamicShared() + weight_bytes + 16 * thread;
  int item = begin_item + thread, next = 0;
  bool made = false;
  float value[4] = {};
#pragma unroll 1
  do {
    const int head = min(item, end_item - 1) / parts, at = (item - head * parts) * 4;
    const int count = item < end_item ? min(at_once, clusters - next) : 0;
    const float* const values = first_part(head).values + at;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      CopyAsync16(SharedAddress(mine + (i << part_shift)),
                  values + std::int64_t{next + i} * cluster * p.head_dim, 16);
    }
    CommitCopies();
    if (!made) {
      weights.Make<Kernel::kThreads>(args, first_head, first_part, begin_item / parts,
                                     (end_item + parts - 1) / parts, cluster);
      __syncthreads();
      made = true;
    }
    AwaitCopies<0>();
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      float part[4];
      Load(reinterpret_cast<const float*>(mine + (i << part_shift)), part);
      const float weight = weights.of(head, next + i);
#pragma unroll
      for (int d = 0; d < 4; ++d) value[d] = fmaf(part[d], weight, value[d]);
    }
    next += at_once;
    if (item < end_item && next < clusters) continue;
    if (item < end_item) {
      const std::int64_t element = (row * p.heads + first_head + head) * p.head_dim + at;
      if (args.out_type == DataType::kFloat32) {
        Store(value, static_cast<float*>(args.out) + element);
      } else {
        Store(value, static_cast<__nv_bfloat16*>(args.out) + element);
      }
    }
    for (float& sum : value) sum = 0;
    next = 0;
    item += Kernel::kThreads;
  } while (item < end_item);
}

template <class Cache, bool kMakesHeads>
cudaError_t LaunchDecode(const DecodeArgs<kMakesHeads>& args, LaunchStream stream) {
  const AttentionArgs& attention = args.attention;
  const AttentionParams& p = attention.params;
  return WithHeadDim(p.head_dim, [&]<int kDim>(std::integral_constant<int, kDim>) {
    using Kernel = DecodeKernel<Cache, kDim>;
    const std::int64_t units =
        attention.plan.units_are_sequences ? attention.sequences : attention.rows;
    return LaunchClusters(&AttentionDecode<Cache, kDim, kMakesHeads>,
                          Blocks(units * DecodePieces(p), attention.plan.decode.most),
                          Kernel::kThreads,
                          Kernel::template Shared<kMakesHeads>(attention.plan.decode.stages),
                          attention.plan.decode.cluster, stream, args);
  });
}

// As many stages as the device has shared memory for; plans ask for no more.
template <class Cache, bool kMakesHeads>
cudaError_t AllowDecode(int head_dim) {
  return WithHeadDim(head_dim, []<int kDim>(std::integral_constant<int, kDim>) {
    using Kernel = DecodeKernel<Cache, kDim>;
    const auto allow = [](int stages) {
      return AllowShared(&AttentionDecode<Cache, kDim, kMakesHeads>,
                         Kernel::template Shared<kMakesHeads>(stages));
    };
    if (allow(Kernel::kMostStages) == cudaSuccess) return cudaSuccess;
    static_cast<void>(cudaGetLastError());
    return allow(2);
  });
}

}  // namespace culet::cuda_ops
