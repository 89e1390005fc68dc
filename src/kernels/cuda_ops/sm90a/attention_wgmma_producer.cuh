// The producer warpgroup of attention_wgmma.cuh: finds the work and loads queries, keys and values.
#pragma once

#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/sm90a/attention_wgmma_memory.cuh"
#include "sm90/tma.cuh"

namespace culet::cuda_ops {

/// The producer warpgroup.
template <class Cache, int kDim>
struct WgmmaProducer {
  using Kernel = WgmmaKernel<Cache, kDim>;
  using T = MathOf<Cache>;
  static constexpr int kChunks = Kernel::kChunks;
  static_assert(kChunks * Kernel::kKeys / kLeastBox <= 32, "a lane for each copy");

  const WgmmaArgs& args;
  const WgmmaMemory<Cache, kDim> memory;
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
    // Tiles begin at multiples of a box.
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

  /// Loads the queries into shared memory, rounded to T; zeros beyond the tile and the head.
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

  /// Publishes the work and its queries. With codes, copies in flight are not queries, because
  /// those were rounded to T.
  __device__ __forceinline__ void Publish() {
    if constexpr (!Kernel::kCodes) AwaitCopies<0>();
    sm90::FenceAsyncShared();
    sm90::BarrierArrive(&memory.works().full[work_at.stage]);
    work_at.Advance();
  }

  // Codes are contiguous; each of 64 threads copies and converts every 64th piece of 16 bytes, a
  // few pieces in one copy group.
  static constexpr int kCodePieces = kDim / 16;  // of a key
  static constexpr int kAtOnce = 2, kGroups = Kernel::kKeys * kCodePieces / 64 / kAtOnce;
  static_assert(kGroups * kAtOnce * 64 == Kernel::kKeys * kCodePieces);
  static constexpr bool kOnePiece = 64 % kCodePieces == 0;  // a thread has one of each of its keys
  static constexpr bool kSameOrder = kOnePiece && 64 / kCodePieces % 8 == 0;
  // Eight neighbouring threads store two keys' 64 neighbouring dimensions: all banks once.
  __device__ __forceinline__ static int KeyOfPiece(int i, int thread_of_two) {
    if constexpr (!kOnePiece) return (64 * i + thread_of_two) / kCodePieces;
    return thread_of_two / 8 / (kCodePieces / 4) * 2 + thread_of_two / 4 % 2 +
           i * (64 / kCodePieces);
  }
  __device__ __forceinline__ static int PieceOfKey(int i, int thread_of_two) {
    if constexpr (!kOnePiece) return (64 * i + thread_of_two) % kCodePieces;
    return thread_of_two / 8 % (kCodePieces / 4) * 4 + thread_of_two % 4;
  }

  /// Starts copying group `group` of a tile's codes to `codes`. Lane kChunks * i holds the row of
  /// box i; boxes without one become zeros. This is thread `thread_of_two` of 64.
  __device__ __forceinline__ void LoadCodes(const void* cache, int kv_head, int row, char* codes,
                                            int group, int thread_of_two) const {
    const AttentionParams& p = args.attention.params;
    const int shift = __ffs(args.box) - 1;
    const int row_bytes = p.kv_heads * p.head_dim;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = group * kAtOnce + j;
      const int key = KeyOfPiece(i, thread_of_two), dim = PieceOfKey(i, thread_of_two) * 16;
      const int first = __shfl_sync(kAllLanes, row, (key >> shift) * kChunks);
      const bool there = first >= 0 && dim < p.head_dim;
      const char* const head =
          static_cast<const char*>(cache) + (there ? kv_head * p.head_dim + dim : 0);
      const auto at_row = static_cast<unsigned>(there ? first + (key & (args.box - 1)) : 0);
      CopyAsync16(SharedAddress(codes) + static_cast<std::uint32_t>(16 * (64 * i + thread_of_two)),
                  head + std::size_t{at_row} * static_cast<unsigned>(row_bytes), there ? 16 : 0);
    }
  }

  /// Converts the group that this thread copied to float16 in a stage of the ring.
  __device__ __forceinline__ static void ExpandCodes(const char* codes, char* stage, int group,
                                                     int thread_of_two) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = group * kAtOnce + j;
      const uint4 x = *reinterpret_cast<const uint4*>(codes + 16 * (64 * i + thread_of_two));
      const int key = KeyOfPiece(i, thread_of_two), piece = PieceOfKey(i, thread_of_two);
      // Keys eight apart have the same swizzle.
      const int before = kSameOrder ? key - KeyOfPiece(0, thread_of_two) : 0;
      char* const rows = stage + piece / 4 * Kernel::kChunk + before * Kernel::kRow;
      const auto at_row = [&](int half) {
        return reinterpret_cast<uint4*>(
            rows + TmaOffset128(static_cast<unsigned>(key - before),
                                static_cast<unsigned>(piece % 4 * 32 + half * 16)));
      };
      *at_row(0) = make_uint4(PairOfCodes(x.x), PairOfCodes(x.x >> 16), PairOfCodes(x.y),
                              PairOfCodes(x.y >> 16));
      *at_row(1) = make_uint4(PairOfCodes(x.z), PairOfCodes(x.z >> 16), PairOfCodes(x.w),
                              PairOfCodes(x.w >> 16));
    }
  }

  /// Clears the ring's dimensions beyond the head, which consumers check for NaN.
  __device__ __forceinline__ void ClearRing() {
    for (int i = thread; i < Kernel::kStages * Kernel::kStageBytes / 16; i += 128) {
      reinterpret_cast<uint4*>(memory.stage(0))[i] = make_uint4(0, 0, 0, 0);
    }
    Sync();
  }

  /// Two warps load keys, the other two values, each half of the boxes.
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
    int row = row_of(0), next = row_of(1);
    const int thread_of_two = warp % 2 * 32 + lane;
    char* const codes = memory.codes(values);
    const auto load_codes = [&](int of_row, int group) {
      LoadCodes(values ? args.attention.v : args.attention.k, work.kv_head, of_row, codes, group,
                thread_of_two);
    };
    if constexpr (Kernel::kCodes) {
#pragma unroll 1
      for (int group = 0; group < kGroups && work.tiles > 0; ++group) {
        load_codes(row, group);
        CommitCopies();
      }
    }
    at.Skip(slot(0));
#pragma unroll 1
    for (int i = 0; i < work.tiles; ++i) {
      const int after = row_of(i + 2);
      ring.WaitEmpty(at);
      const unsigned outside = __ballot_sync(kAllLanes, row == -1);
      if (first_half && lane == 0) memory.lost(at.stage) = outside;
      if constexpr (Kernel::kCodes) {
        // Codes of the next tile replace converted ones, group by group.
#pragma unroll 1
        for (int group = 0; group < kGroups; ++group) {
          AwaitCopies<kGroups - 1>();
          ExpandCodes(codes, memory.stage(at.stage), group, thread_of_two);
          if (i + 1 < work.tiles) load_codes(next, group);
          CommitCopies();
        }
        sm90::FenceAsyncShared();
        __syncwarp();
        if (lane == 0) sm90::BarrierArrive(&ring.full[at.stage]);
      } else {
        if (first_half && lane == 0) {
          sm90::BarrierArriveExpect(&ring.full[at.stage], Kernel::kStageBytes);
        }
        if (mine) {
          // Rows outside of the cache read as zeros.
          sm90::TmaLoad3(memory.stage(at.stage) + offset, map, &ring.full[at.stage], chunk * 64,
                         work.kv_head, row < 0 ? -Kernel::kKeys : row);
        }
      }
      row = next;
      next = after;
      at.Skip(slot(i + 1) - slot(i));
      if (i == 0) Publish();
    }
    if (work.tiles == 0) Publish();
  }

  __device__ __forceinline__ void Run() {
    const std::int64_t all = std::int64_t{args.units} * args.attention.plan.tiles.most;
    const int blocks = static_cast<int>(gridDim.x);
    if constexpr (Kernel::kCodes && kDim % 64 != 0) ClearRing();
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

}  // namespace culet::cuda_ops
