// What the kernels of latent attention on tensor cores share: their sizes, and how the sums of a
// tile's queries leave a block.
#pragma once

#include "kernels/cuda_ops/attention_tile.cuh"

namespace culet::cuda_ops {

/// Bytes of a key, which a row of queries has, too.
inline constexpr int kLatentRow = 2 * kMostLatentKey;

/// Floats from one query's sums of kColumns values to the next one's in shared memory: eight rows
/// of which lanes store pairs lie in different banks.
template <int kColumns>
inline constexpr int kLatentSumsRow = kColumns + 8;

__device__ __forceinline__ bool IsFinite(float value) {
  return (__float_as_uint(value) & 0x7FFFFFFFu) < 0x7F800000u;
}

/// A tile of one key-value head.
struct LatentTile {
  Tile tile;
  int kv_head, group;

  __device__ __forceinline__ std::int64_t row(int query) const {
    return static_cast<std::int64_t>(tile.row) + (tile.first + query) / group;
  }
  __device__ __forceinline__ int head(int query) const {
    return kv_head * group + (tile.first + query) % group;
  }
};

/// Begins a kernel that AwaitLatentInputs ends the beginning of: until then it reads only what no
/// earlier kernel writes.
__device__ __forceinline__ void BeginLatent(const AttentionArgs& args) {
  if (args.early) {
    LetNextBegin();
  } else {
    WaitForPrevious();
  }
}
__device__ __forceinline__ void AwaitLatentInputs(const AttentionArgs& args) {
  if (args.early) WaitForPrevious();
}

/// Keys from the first one on that no earlier kernel writes, of a tile that sees keys up to `last`.
/// With early ones it is one row, which sees its own key last or not at all.
__device__ __forceinline__ int OldLatentKeys(const AttentionArgs& args, int last) {
  if (!args.early) return last;
  return args.params.causal ? max(last - 1, 0) : 0;
}

/// Leaves what a split without keys found of a tile's queries. Threads of the block, from 0 on.
__device__ __forceinline__ void StoreNoKeys(const AttentionArgs& args, const LatentTile& of,
                                            int split) {
  const int query = static_cast<int>(threadIdx.x);
  if (query >= of.tile.count) return;
  const AttentionPart part(args, args.rows, of.row(query), of.head(query), args.plan.tiles.most,
                           split);
  part.maxima[part.index] = kNoKey;
  part.sums[part.index] = 0;
}

/// Leaves `most`, a power of two, and `sum` of a query in its split's part, and returns the factor
/// of its sums of values.
__device__ __forceinline__ float FinishLatentQuery(const AttentionArgs& args, const LatentTile& of,
                                                   int query, int split, float most, float sum) {
  if (query >= of.tile.count) return 0;
  // No key: 0 / 0, the mean of no values.
  if (args.plan.tiles.most == 1) return 1 / WithSink(args, of.head(query), most, sum);
  const AttentionPart part(args, args.rows, of.row(query), of.head(query), args.plan.tiles.most,
                           split);
  part.maxima[part.index] = most;
  part.sums[part.index] = sum;
  return 1;
}

/// Stores kColumns sums of values, from column `first` on, of a tile's queries: times their factor
/// in out where there are no splits, else in the split's part. `thread` counts kThreads callers.
template <int kColumns, int kThreads>
__device__ __forceinline__ void StoreLatentSums(const AttentionArgs& args, const LatentTile& of,
                                                int split, const float* sums, const float* factors,
                                                int first, int thread) {
  constexpr int kPieces = kColumns / 4;
#pragma unroll 4
  for (int i = thread; i < of.tile.count * kPieces; i += kThreads) {
    const int query = i / kPieces, column = i % kPieces * 4;
    float values[4];
    Load(sums + query * kLatentSumsRow<kColumns> + column, values);
    if (args.plan.tiles.most > 1) {
      const AttentionPart part(args, args.rows, of.row(query), of.head(query), args.plan.tiles.most,
                               split);
      Store(values, part.values + first + column);
      continue;
    }
#pragma unroll
    for (float& value : values) value *= factors[query];
    const std::int64_t element =
        (of.row(query) * args.params.heads + of.head(query)) * kMostLatentValue + first + column;
    if (args.out_type == DataType::kFloat32) {
      Store(values, static_cast<float*>(args.out) + element);
    } else {
      Store(values, static_cast<__nv_bfloat16*>(args.out) + element);
    }
  }
}

}  // namespace culet::cuda_ops
