// Shared by the prompt kernels: a block's tile of queries, the keys that they see, non-finite
// values, and the merge of splits.
#pragma once

#include "kernels/cuda_ops/attention_splits.cuh"

namespace culet::cuda_ops {

/// A block's queries: `count` from `first` on, of those of a sequence's rows, which begin with row
/// `row`. Query i is head i % group of row i / group.
struct Tile {
  std::int64_t sequence = -1;  ///< -1: the rows belong to none
  int row = 0, first = 0, count = 0;

  Tile() = default;
  /// The tile `index` of all that there are: of the rows before the sequences, of each sequence,
  /// of the rows behind them. None: no queries. All lanes of a warp call it.
  __device__ Tile(const AttentionArgs& args, int index, int group, int queries) {
    const int rows = static_cast<int>(args.rows);
    const int sequences = args.starts == nullptr ? 1 : static_cast<int>(args.sequences);
    const auto bound = [&](int i) {
      if (args.starts == nullptr) return i < 2 ? 0 : rows;
      if (i == 0 || i > sequences + 1) return i == 0 ? 0 : rows;
      const int start = args.starts[i - 1];
      return start < 0 ? 0 : start > rows ? rows : start;
    };
    for (int base = 0; base < sequences + 2; base += 32) {
      const int lane = static_cast<int>(threadIdx.x) % 32, i = base + lane;
      int begin = 0, found = 0;
      if (i < sequences + 2) {
        begin = bound(i);
        found = max(bound(i + 1) - begin, 0);
        const bool in_sequence = i > 0 && i <= sequences;
        if (args.plan.units_are_sequences && in_sequence && found == 1) found = 0;
        found *= group;
      }
      const int tiles = (found + queries - 1) / queries;
      int up_to = tiles;
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const int before = __shfl_up_sync(kAllLanes, up_to, offset);
        if (lane >= offset) up_to += before;
      }
      const unsigned beyond = __ballot_sync(kAllLanes, up_to > index);
      if (beyond == 0) {
        index -= __shfl_sync(kAllLanes, up_to, 31);
        continue;
      }
      const int mine = __ffs(static_cast<int>(beyond)) - 1;
      row = __shfl_sync(kAllLanes, begin, mine);
      found = __shfl_sync(kAllLanes, found, mine);
      // The last queries see the most keys: they come first.
      first = (__shfl_sync(kAllLanes, up_to, mine) - 1 - index) * queries;
      count = min(found - first, queries);
      sequence = base + mine - 1 < sequences ? base + mine - 1 : -1;
      return;
    }
  }
};

/// Keys that some query of a tile sees, from `first` up to `last` (first > last: none), and those
/// that all of them see.
struct SeenKeys {
  int first = 0x7FFFFFFF, last = 0, all_first = 0, all_last = 0x7FFFFFFF;
};

/// `seen[i]`: the keys that query i sees, none beyond the tile's count. `sync` is a barrier of the
/// threads that call it, the first kQueries of the block and maybe more; `bounds` has room for
/// kQueries / 32, both are in shared memory.
template <int kQueries, class Sync>
__device__ __forceinline__ SeenKeys FindSeenKeys(const AttentionArgs& args, const Tile& tile,
                                                 int group, int2* seen, int4* bounds,
                                                 const Sync& sync) {
  const int thread = static_cast<int>(threadIdx.x);
  SeenKeys keys;
  if (thread < kQueries) {
    int2 range = make_int2(0, 0);
    if (thread < tile.count) {
      const KeyRange of(args, std::int64_t{tile.row} + (tile.first + thread) / group,
                        tile.sequence);
      range = make_int2(static_cast<int>(of.first), static_cast<int>(of.last));
      if (range.x < range.y) keys.first = range.x;
      keys.last = keys.all_last = range.y;
      keys.all_first = range.x;
    }
    seen[thread] = range;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      keys.first = min(keys.first, __shfl_xor_sync(kAllLanes, keys.first, offset));
      keys.last = max(keys.last, __shfl_xor_sync(kAllLanes, keys.last, offset));
      keys.all_first = max(keys.all_first, __shfl_xor_sync(kAllLanes, keys.all_first, offset));
      keys.all_last = min(keys.all_last, __shfl_xor_sync(kAllLanes, keys.all_last, offset));
    }
    if (thread % 32 == 0) {
      bounds[thread / 32] = make_int4(keys.first, keys.last, keys.all_first, keys.all_last);
    }
  }
  sync();
#pragma unroll
  for (int i = 0; i < kQueries / 32; ++i) {
    const int4 of = bounds[i];
    keys.first = min(keys.first, of.x), keys.last = max(keys.last, of.y);
    keys.all_first = max(keys.all_first, of.z), keys.all_last = min(keys.all_last, of.w);
  }
  return keys;
}

/// Which of a pair of T is infinite or NaN: all ones in its exponent. Bit 0 and bit 1.
template <class T>
__device__ __forceinline__ int NonFinite(std::uint32_t pair) {
  constexpr std::uint32_t kExponent = std::is_same_v<T, __nv_bfloat16> ? 0x7F80u : 0x7C00u;
  return ((~pair & kExponent) == 0 ? 1 : 0) | ((~pair & kExponent << 16) == 0 ? 2 : 0);
}

/// The pair with zeros for infinities and NaN.
template <class T>
__device__ __forceinline__ std::uint32_t FiniteOrZero(std::uint32_t pair) {
  const int found = NonFinite<T>(pair);
  return pair & ((found & 1) != 0 ? 0xFFFF0000u : 0xFFFFFFFFu) &
         ((found & 2) != 0 ? 0x0000FFFFu : 0xFFFFFFFFu);
}

/// Merges `splits` splits for all queries of a tile, by `threads` threads. Each thread takes
/// several queries at once, since it mostly waits for memory.
__device__ __forceinline__ void MergeTile(const AttentionArgs& args, const Tile& tile, int kv_head,
                                          int splits, int thread, int threads) {
  constexpr int kItems = 4;
  const AttentionParams& p = args.params;
  const int parts = p.head_dim / 4, group = p.heads / p.kv_heads, all = tile.count * parts;
#pragma unroll 1
  for (int i = thread; i < all; i += kItems * threads) {
    std::int64_t index[kItems], element[kItems];
    int dim[kItems];
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int at = min(i + item * threads, all - 1), query = tile.first + at / parts;
      const std::int64_t row = std::int64_t{tile.row} + query / group;
      const int head = kv_head * group + query % group;
      index[item] = AttentionPart(args, args.rows, row, head, args.plan.tiles.most, 0).index;
      element[item] = (row * p.heads + head) * p.head_dim;
      dim[item] = at % parts * 4;
    }
    MergeParts<kItems>(args, index, dim, element, (all - i + threads - 1) / threads,
                       AttentionPart(args, args.rows, 0, 0, args.plan.tiles.most, 0), splits, 1);
  }
}

}  // namespace culet::cuda_ops
