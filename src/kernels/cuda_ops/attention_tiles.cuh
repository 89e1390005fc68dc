// Attention of prompts on tensor cores, after FlashAttention-2 (Dao, 2023): a block takes a tile of
// queries of one sequence and key-value head, rows and the heads of their group together, and goes
// through the keys that they see. Keys and values come through the block table into shared memory
// while the block computes. Which tile is a block's is found on the device.
#pragma once

#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/attention_splits.cuh"
#include "kernels/cuda_ops/attention_tile.cuh"

namespace culet::cuda_ops {

inline constexpr int kTileThreads = 128;

/// Rarely needed facts about a block's work, in shared memory, because the loop has no registers
/// for them.
struct TileState {
  Tile tile;
  int kv_head;
  int begin, splits;  ///< the first key of the split, splits that have keys
  int2 all_see;       ///< keys of the split that all queries see
};

/// Shared memory for a cache of Cache elements. E4M3 codes are copied as they are and become
/// float16 in the tiles of keys and values.
template <class Cache, int kDim>
struct TileKernel {
  static constexpr bool kCodes = kAreCodes<Cache>;
  static constexpr int kQueries = TileQueries(kDim);
  static constexpr int kBlocks = kQueries / 64;  // of 16 queries, a warp
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;
  static constexpr int kRow = kSharedRow<kDim>, kChunks = kDim / 8;
  static constexpr int kPieces = kKeys * kChunks / kTileThreads;  // of 16 bytes, a thread
  static_assert(kKeys * kChunks % kTileThreads == 0);
  // Shared memory: queries, keys, values; the rows of two tiles' keys; the keys that each query
  // sees; what the warps say of all of them.
  using KeyRows = SharedRows<2 * kDim>;
  static constexpr int kKeysAt = kQueries * kRow, kValuesAt = kKeysAt + kKeys * KeyRows::kRow;
  static_assert(kKeysAt % KeyRows::kAlign == 0);
  static constexpr int kRowsAt = kValuesAt + kKeys * KeyRows::kRow;
  static constexpr int kSpoiledAt = kRowsAt + 2 * kKeys * static_cast<int>(sizeof(int));
  static constexpr int kSeenAt = kSpoiledAt + 2 * static_cast<int>(sizeof(int2));
  static constexpr int kBoundsAt = kSeenAt + kQueries * static_cast<int>(sizeof(int2));
  static constexpr int kStateAt = kBoundsAt + 4 * static_cast<int>(sizeof(int4));
  static constexpr int kCodesAt = (kStateAt + static_cast<int>(sizeof(TileState)) + 15) / 16 * 16;
  static constexpr int kCodeBytes = kKeys * kDim;  // of a tile's keys or values
  static constexpr int kShared = kCodes ? kCodesAt + 2 * kCodeBytes : kCodesAt;
};

/// A thread's 16-byte pieces of a tile of keys or values.
template <class Cache, int kDim>
struct Piece {
  using Kernel = TileKernel<Cache, kDim>;
  static constexpr bool kEven = kTileThreads % Kernel::kChunks == 0;  // rows of pieces a round
  int thread = static_cast<int>(threadIdx.x);

  __device__ __forceinline__ int key(int i) const {
    if constexpr (kEven) return thread / Kernel::kChunks + i * (kTileThreads / Kernel::kChunks);
    return (thread + i * kTileThreads) / Kernel::kChunks;
  }
  __device__ __forceinline__ int chunk(int i) const {
    if constexpr (kEven) return thread % Kernel::kChunks;
    return (thread + i * kTileThreads) % Kernel::kChunks;
  }
  /// Where it lies in shared memory, in bytes.
  __device__ __forceinline__ int at(int i) const {
    return Kernel::KeyRows::Offset(key(i), chunk(i));
  }
};

/// Starts copying a tile's keys or values to shared memory; zeros where `rows` is negative.
template <class Cache, int kDim, int kAtOnce>
__device__ __forceinline__ void LoadTile(const AttentionArgs& args, const void* cache, int kv_head,
                                         const int* rows, std::uint32_t to) {
  using Kernel = TileKernel<Cache, kDim>;
  const AttentionParams& p = args.params;
  const Piece<Cache, kDim> piece;
  const char* const from =
      static_cast<const char*>(cache) + kv_head * p.head_dim * 2 + piece.chunk(0) * 16;
  const auto stride = static_cast<unsigned>(p.kv_heads * p.head_dim * 2);
#pragma unroll(kAtOnce)
  for (int i = 0; i < Kernel::kPieces; ++i) {
    const int row = rows[piece.key(i)];
    const bool there = row >= 0 && piece.chunk(i) * 8 < p.head_dim;
    const std::int64_t beside = (piece.chunk(i) - piece.chunk(0)) * 16;
    CopyAsync16(to + static_cast<std::uint32_t>(piece.at(i)),
                from + std::uint64_t{static_cast<unsigned>(max(row, 0))} * stride + beside,
                there ? 16 : 0);
  }
}

// How many copies of codes a thread has in flight. The assembler for sm_86 and sm_89 keeps more of
// their addresses in registers than it has, and spills.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890)
constexpr int kCodesAtOnce = 1;
#else
constexpr int kCodesAtOnce = 16;
#endif

/// As above, for codes, which are contiguous.
template <class Cache, int kDim>
__device__ __forceinline__ void LoadCodes(const AttentionArgs& args, const void* cache, int kv_head,
                                          const int* rows, std::uint32_t to) {
  using Kernel = TileKernel<Cache, kDim>;
  constexpr int kChunks = kDim / 16, kPieces = Kernel::kKeys * kChunks / kTileThreads;
  static_assert(Kernel::kKeys * kChunks % kTileThreads == 0);
  const AttentionParams& p = args.params;
#pragma unroll(kCodesAtOnce)
  for (int i = 0; i < kPieces; ++i) {
    const int piece = static_cast<int>(threadIdx.x) + i * kTileThreads;
    const int row = rows[piece / kChunks], dim = piece % kChunks * 16;
    const bool there = row >= 0 && dim < p.head_dim;
    const std::int64_t element =
        there ? (std::int64_t{row} * p.kv_heads + kv_head) * p.head_dim + dim : 0;
    CopyAsync16(to + static_cast<std::uint32_t>(16 * piece),
                static_cast<const char*>(cache) + element, there ? 16 : 0);
  }
}

/// The codes that this thread copied, as float16 in their tile.
template <class Cache, int kDim>
__device__ __forceinline__ void ExpandCodes(const char* codes, char* tile) {
  using Kernel = TileKernel<Cache, kDim>;
  constexpr int kChunks = kDim / 16, kPieces = Kernel::kKeys * kChunks / kTileThreads;
#pragma unroll 2
  for (int i = 0; i < kPieces; ++i) {
    const int piece = static_cast<int>(threadIdx.x) + i * kTileThreads;
    const uint4 x = *reinterpret_cast<const uint4*>(codes + 16 * piece);
    const int to = Kernel::KeyRows::Offset(piece / kChunks, piece % kChunks * 2);
    *reinterpret_cast<uint4*>(tile + to) = make_uint4(PairOfCodes(x.x), PairOfCodes(x.x >> 16),
                                                      PairOfCodes(x.y), PairOfCodes(x.y >> 16));
    *reinterpret_cast<uint4*>(tile + Kernel::KeyRows::Behind(to, 16)) = make_uint4(
        PairOfCodes(x.z), PairOfCodes(x.z >> 16), PairOfCodes(x.w), PairOfCodes(x.w >> 16));
  }
}

/// Whether this thread's pieces of the values hold an infinity or a NaN.
template <class Cache, int kDim>
__device__ __forceinline__ bool HasNonFinite(const char* values) {
  using Kernel = TileKernel<Cache, kDim>;
  using T = MathOf<Cache>;
  int found = 0;
#pragma unroll 1
  for (int i = 0; i < Kernel::kPieces; ++i) {
    const uint4 piece = *reinterpret_cast<const uint4*>(values + Piece<Cache, kDim>().at(i));
    found |= NonFinite<T>(piece.x) | NonFinite<T>(piece.y) | NonFinite<T>(piece.z) |
             NonFinite<T>(piece.w);
  }
  return found != 0;
}

/// Zeros for infinities and NaN in this thread's pieces.
template <class Cache, int kDim>
__device__ __forceinline__ void ClearNonFinite(char* values) {
  using Kernel = TileKernel<Cache, kDim>;
#pragma unroll 1
  for (int i = 0; i < Kernel::kPieces; ++i) {
    auto* const pairs = reinterpret_cast<std::uint32_t*>(values + Piece<Cache, kDim>().at(i));
#pragma unroll 1
    for (int word = 0; word < 4; ++word) pairs[word] = FiniteOrZero<MathOf<Cache>>(pairs[word]);
  }
}

/// Requires: K and V of Cache in whole vectors.
template <class Cache, int kDim>
__global__ void __launch_bounds__(kTileThreads, 2)
    AttentionTiles(const __grid_constant__ AttentionArgs args) {
  WaitForPrevious();
  using Kernel = TileKernel<Cache, kDim>;
  using T = MathOf<Cache>;
  using Warp = WarpAttention<T, kDim, Kernel::kBlocks, Kernel::kKeys>;
  constexpr int kBlocks = Kernel::kBlocks, kKeys = Kernel::kKeys, kRow = Kernel::kRow;
  const AttentionParams& p = args.params;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int group = p.heads / p.kv_heads;
  char* const memory = DynamicShared();
  const std::uint32_t shared = SharedAddress(memory);
  int* const key_rows = reinterpret_cast<int*>(memory + Kernel::kRowsAt);
  int* const spoiled = reinterpret_cast<int*>(memory + Kernel::kSpoiledAt);
  int2* const seen = reinterpret_cast<int2*>(memory + Kernel::kSeenAt);
  int4* const bounds = reinterpret_cast<int4*>(memory + Kernel::kBoundsAt);

  TileState& state = *reinterpret_cast<TileState*>(memory + Kernel::kStateAt);
  const Tile& tile = state.tile;
  // Of query `i` of the tile: its row, and its head.
  const auto row_of = [&](int i) {
    return static_cast<std::int64_t>(tile.row) + (tile.first + i) / group;
  };
  const auto head_of = [&](int i) { return state.kv_head * group + (tile.first + i) % group; };
  int count = 0;
  {
    const Tile found(args, static_cast<int>(blockIdx.x / static_cast<unsigned>(p.kv_heads)), group,
                     Kernel::kQueries);
    if (found.count == 0) return;
    if (thread == 0) {
      state.tile = found;
      state.kv_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.kv_heads));
    }
    count = found.count;
  }
  __syncthreads();

  const SeenKeys found =
      FindSeenKeys<Kernel::kQueries>(args, tile, group, seen, bounds, [] { __syncthreads(); });
  const auto row_of_key = [&](int key) {
    KeyRange range;
    range.sequence = tile.sequence;
    return range.RowOf(args, key);
  };
  const SplitKeys keys(args.plan.tiles, min(found.first, found.last), found.last);
  if (keys.idle()) return;
  if (thread < Kernel::kQueries) seen[thread].y = min(seen[thread].y, keys.end);
  if (thread == 0) {
    state.begin = keys.begin;
    state.splits = keys.splits;
    state.all_see = make_int2(found.all_first, min(found.all_last, keys.end));
  }

#pragma unroll 4
  for (int i = thread; i < Kernel::kQueries * Kernel::kChunks; i += kTileThreads) {
    const int query = i / Kernel::kChunks, chunk = i % Kernel::kChunks;
    const std::int64_t element = (row_of(query) * p.heads + head_of(query)) * p.head_dim;
    *reinterpret_cast<uint4*>(memory + query * kRow + chunk * 16) =
        query < count ? LoadQuery<T>(args, element, chunk * 8) : make_uint4(0, 0, 0, 0);
  }
  const int tiles = (keys.end - keys.begin + kKeys - 1) / kKeys;
  // Where the keys of tile `j` lie, and whether the block table puts some outside the cache.
  const auto rows_of_tile = [&](int j) { return key_rows + j % 2 * kKeys; };
  const auto keep_rows = [&](int j, int row) {
    if (thread >= kKeys) return;
    rows_of_tile(j)[thread] = row;
    const bool any = __any_sync(kAllLanes, row == -1) != 0;
    if (lane == 0) spoiled[j % 2 * 2 + warp] = any;
  };
  const auto find_rows = [&](int j) {
    const int key = keys.begin + j * kKeys + thread;
    keep_rows(j, thread < kKeys && key < keys.end ? row_of_key(key) : kBeyond);
  };
  if (tiles > 0) find_rows(tiles - 1);
  if (tiles > 1) find_rows(tiles - 2);
  __syncthreads();
  constexpr int kKeyCodesAt = Kernel::kCodesAt, kValueCodesAt = kKeyCodesAt + Kernel::kCodeBytes;
  const auto load_keys = [&]<int kAtOnce>(int j, std::integral_constant<int, kAtOnce>) {
    if constexpr (Kernel::kCodes) {
      LoadCodes<Cache, kDim>(args, args.k, state.kv_head, rows_of_tile(j), shared + kKeyCodesAt);
    } else {
      LoadTile<Cache, kDim, kAtOnce>(args, args.k, state.kv_head, rows_of_tile(j),
                                     shared + Kernel::kKeysAt);
    }
  };
  if (tiles > 0) load_keys(tiles - 1, std::integral_constant<int, 1>{});
  CommitCopies();

  const auto query_at = [&](int block) { return warp * 16 * kBlocks + block * 16; };
  const bool busy = query_at(0) < count;
  const std::uint32_t q_at =
      shared + static_cast<std::uint32_t>((query_at(0) + lane % 16) * kRow + lane / 16 * 16);
  const auto queries = [&](int block, int step, std::uint32_t(&a)[4]) {
    LoadMatrices(q_at + static_cast<std::uint32_t>(block * 16 * kRow + step * 32), a);
  };
  const float scale = args.log2_scale * KeyScale<Cache>(args, state.kv_head);
  Warp sums;
#pragma unroll 1
  for (int j = tiles - 1; j >= 0; --j) {
    const int base = state.begin + j * kKeys;
    AwaitCopies<0>();
    if constexpr (Kernel::kCodes) {
      ExpandCodes<Cache, kDim>(memory + kKeyCodesAt, memory + Kernel::kKeysAt);
    }
    __syncthreads();  // the keys are there, the values of the tile before have been used
    if constexpr (Kernel::kCodes) {
      LoadCodes<Cache, kDim>(args, args.v, state.kv_head, rows_of_tile(j), shared + kValueCodesAt);
    } else {
      LoadTile<Cache, kDim, 8>(args, args.v, state.kv_head, rows_of_tile(j),
                               shared + Kernel::kValuesAt);
    }
    CommitCopies();
    typename Warp::Scores scores;
    if (busy) Warp::Multiply(queries, shared + Kernel::kKeysAt, scores);
    __syncthreads();  // the keys have been used
    if (j > 0) load_keys(j - 1, std::integral_constant<int, 4>{});
    CommitCopies();
    // Some queries may not see some keys of this tile.
    const int2 clear = state.all_see;
    const bool lost = spoiled[j % 2 * 2] != 0 || (kKeys > 32 && spoiled[j % 2 * 2 + 1] != 0);
    const bool masked = lost || base < clear.x || base + kKeys > clear.y;
    if (busy) {
      if (lost) {
        // A key outside the cache spoils the queries that see it.
        const int* const rows = rows_of_tile(j) + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if (rows[8 * n + i] != -1) continue;
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) {
              scores[block][n][i] = scores[block][n][i + 2] = NotANumber();
            }
          }
        }
      }
      if (masked) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int2 see = seen[query_at(block) + lane / 4 + 8 * half];
            const int low = see.x - base - lane % 4 * 2;
            const int high = see.y - base - lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
              for (int i = 0; i < 2; ++i) {
                const int at = 8 * n + i;
                if (at < low || at >= high) scores[block][n][2 * half + i] = kNoKey;
              }
            }
          }
        }
      }
      sums.Softmax(scores, scale);
    }
    AwaitCopies<1>();
    if constexpr (Kernel::kCodes) {
      ExpandCodes<Cache, kDim>(memory + kValueCodesAt, memory + Kernel::kValuesAt);
    }
    __syncthreads();  // the values are there
    // A weight of zero does not undo an infinity or a NaN of a key that a query may not see: they
    // go to those that see them, and zeros stay in their places.
    char* const values = memory + Kernel::kValuesAt;
    if (masked && __syncthreads_or(HasNonFinite<Cache, kDim>(values)) != 0) {
#pragma unroll 1
      for (int key = 0; busy && key < kKeys; ++key) {
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          const auto pair = *reinterpret_cast<const std::uint32_t*>(
              values + Kernel::KeyRows::Offset(key, n) + lane % 4 * 4);
          const int found = NonFinite<T>(pair);
          if (found == 0) continue;
          const T* const both = reinterpret_cast<const T*>(&pair);
#pragma unroll
          for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int2 see = seen[query_at(block) + lane / 4 + 8 * half];
              if (base + key < see.x || base + key >= see.y) continue;
              if ((found & 1) != 0) sums.out[block][n][2 * half] += ToFloat(both[0]);
              if ((found & 2) != 0) sums.out[block][n][2 * half + 1] += ToFloat(both[1]);
            }
          }
        }
      }
      __syncthreads();
      ClearNonFinite<Cache, kDim>(values);
      __syncthreads();
    }
    const int next = thread < kKeys && j > 1 ? row_of_key(base - 2 * kKeys + thread) : kBeyond;
    if (busy) sums.Accumulate(scores, shared + Kernel::kValuesAt);
    if (j > 1) keep_rows(j - 2, next);
  }
  sums.Finish(scale);

  if (busy) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = query_at(block) + lane / 4 + 8 * half;
        if (i >= tile.count) continue;
        const std::int64_t element = (row_of(i) * p.heads + head_of(i)) * p.head_dim;
        const AttentionPart part(args, args.rows, row_of(i), head_of(i), args.plan.tiles.most,
                                 static_cast<int>(blockIdx.y));
        const bool whole = state.splits == 1;
        // No key: 0 / 0, the mean of no values.
        const float of_values = ValueScale<Cache>(args, state.kv_head);
        const float total =
            WithSink(args, head_of(i), sums.most[block][half], sums.sum[block][half]);
        const float over = whole ? of_values / total : of_values;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          const int dim = 8 * n + lane % 4 * 2;
          if (8 * n >= p.head_dim) break;
          const float x = sums.out[block][n][2 * half] * over;
          const float y = sums.out[block][n][2 * half + 1] * over;
          if (whole) {
            StorePair(x, y, args, element + dim);
          } else {
            const float pair[2] = {x, y};
            Store(pair, part.values + dim);
          }
        }
        if (!whole && lane % 4 == 0) {
          part.maxima[part.index] = sums.most[block][half];
          part.sums[part.index] = sums.sum[block][half];
        }
      }
    }
  }
  if (state.splits == 1 || !IsLastSplit(args.counters + blockIdx.x, state.splits)) return;
  MergeTile(args, tile, state.kv_head, state.splits, thread, kTileThreads);
}

template <class Cache>
cudaError_t LaunchTiles(const AttentionArgs& args, LaunchStream stream) {
  const AttentionParams& p = args.params;
  return WithHeadDim(p.head_dim, [&]<int kDim>(std::integral_constant<int, kDim>) {
    using Kernel = TileKernel<Cache, kDim>;
    static_assert(TileQueries(kDim) == Kernel::kQueries);
    return LaunchShared(
        &AttentionTiles<Cache, kDim>,
        Blocks(TileBlocks(p, args.rows, args.sequences, TileQueries(kDim)), args.plan.tiles.most),
        kTileThreads, Kernel::kShared, stream, args);
  });
}

template <class Cache>
cudaError_t AllowTiles(int head_dim) {
  return WithHeadDim(head_dim, []<int kDim>(std::integral_constant<int, kDim>) {
    return AllowShared(&AttentionTiles<Cache, kDim>, TileKernel<Cache, kDim>::kShared);
  });
}

}  // namespace culet::cuda_ops
