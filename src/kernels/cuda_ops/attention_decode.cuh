// Attention of single rows on tensor cores: a block takes up to 16 query heads of one key-value
// head and part of the keys that the row sees. Each warp streams keys of its own through its own
// shared memory, so that nobody waits for another until the end; then the warps' sums are merged,
// and the last block's of a row merges those of the blocks.
#pragma once

#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/attention_splits.cuh"

namespace culet::cuda_ops {

template <class T, int kDim>
struct DecodeKernel {
  static constexpr int kWarps = kDim <= 128 ? 4 : 2, kThreads = 32 * kWarps;
  static constexpr int kHeads = 16, kKeys = 16, kStages = 2;
  static constexpr int kRow = kSharedRow<kDim>, kChunks = kDim / 8;
  static constexpr int kStage = 2 * kKeys * kRow;  // keys, then values
  static constexpr int kQueriesAt = kWarps * kStages * kStage;
  static constexpr int kShared = kQueriesAt + kHeads * kRow;
  static constexpr int kRound = kWarps * kKeys;
  using Warp = WarpAttention<T, kDim, 1, kKeys>;
};

/// What DecodeKernel's warps leave for each other once their rings are done.
template <int kWarps, int kHeads, int kDim>
struct WarpSums {
  float values[kWarps][kHeads][kDim];
  float maxima[kWarps][kHeads];
  float sums[kWarps][kHeads];
};

/// 16 keys of a warp on their way to its shared memory. Lane i knows the row of key i.
template <class Kernel>
__device__ __forceinline__ void LoadKeys(const AttentionArgs& args, int rows, int kv_head,
                                         std::uint32_t stage) {
  const AttentionParams& p = args.params;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kPieces = Kernel::kKeys * Kernel::kChunks;
  static_assert(kPieces % 32 == 0);
  // All at once where there are registers for it.
#pragma unroll(Kernel::kChunks <= 16 ? kPieces / 32 : 4)
  for (int i = 0; i < kPieces / 32; ++i) {
    const int piece = lane + 32 * i, key = piece / Kernel::kChunks, chunk = piece % Kernel::kChunks;
    const int row = __shfl_sync(kAllLanes, rows, key);
    const bool there = row >= 0 && chunk * 8 < p.head_dim;
    const std::int64_t element =
        there ? (std::int64_t{row} * p.kv_heads + kv_head) * p.head_dim + chunk * 8 : 0;
    const auto to = stage + static_cast<std::uint32_t>(key * Kernel::kRow + chunk * 16);
    const int bytes = there ? 16 : 0;
    CopyAsync16(to, static_cast<const char*>(args.k) + 2 * element, bytes);
    CopyAsync16(to + Kernel::kKeys * Kernel::kRow, static_cast<const char*>(args.v) + 2 * element,
                bytes);
  }
}

/// Requires: K and V of T in whole vectors.
template <class T, int kDim>
__global__ void __launch_bounds__(DecodeKernel<T, kDim>::kThreads, 3)
    AttentionDecode(const __grid_constant__ AttentionArgs args) {
  WaitForPrevious();
  using Kernel = DecodeKernel<T, kDim>;
  using Warp = typename Kernel::Warp;
  constexpr int kHeads = Kernel::kHeads, kKeys = Kernel::kKeys;
  const AttentionParams& p = args.params;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int group = p.heads / p.kv_heads, chunks = (group + kHeads - 1) / kHeads;
  const int pieces = p.kv_heads * chunks;
  const auto unit = static_cast<std::int64_t>(blockIdx.x / static_cast<unsigned>(pieces));
  const int piece = static_cast<int>(blockIdx.x % static_cast<unsigned>(pieces));
  const int kv_head = piece / chunks, in_group = piece % chunks * kHeads;
  const int first_head = kv_head * group + in_group, heads = min(kHeads, group - in_group);

  // A unit is a row, or a sequence that has one row; others are the tiles'.
  std::int64_t row = unit;
  if (args.plan.units_are_sequences) {
    row = args.starts[unit];
    if (args.starts[unit + 1] - row != 1 || row < 0 || row >= args.rows) return;
  }
  const KeyRange range(args, row, unit);
  const SplitKeys keys(args.plan.decode, static_cast<int>(range.first),
                       static_cast<int>(range.last));
  if (keys.idle()) return;

  const std::uint32_t ring = SharedAddress(DynamicShared()) +
                             static_cast<std::uint32_t>(warp * Kernel::kStages * Kernel::kStage);
  const auto row_of = [&](int base) {
    const int key = base + lane % kKeys;
    return key < keys.end ? range.RowOf(args, key) : kBeyond;
  };
  const int begin = keys.begin + warp * kKeys;
  int rows = row_of(begin), next = row_of(begin + Kernel::kRound);
  bool missing = false;
  const auto load = [&](int stage) {
    missing |= rows == -1;
    LoadKeys<Kernel>(args, rows, kv_head,
                     ring + static_cast<std::uint32_t>(stage * Kernel::kStage));
  };
  load(0);
  CommitCopies();
  rows = next;
  next = row_of(begin + 2 * Kernel::kRound);
  if (begin + Kernel::kRound < keys.end) load(1);
  CommitCopies();
  rows = next;

  // Queries of all warps; those beyond the group are zeros.
#pragma unroll
  for (int i = thread; i < kHeads * Kernel::kChunks; i += Kernel::kThreads) {
    const int head = i / Kernel::kChunks, chunk = i % Kernel::kChunks;
    const std::int64_t element = (row * p.heads + first_head + head) * p.head_dim;
    *reinterpret_cast<uint4*>(DynamicShared() + Kernel::kQueriesAt + head * Kernel::kRow +
                              chunk * 16) =
        head < heads ? LoadQuery<T>(args, element, chunk * 8) : make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  const std::uint32_t q_at =
      SharedAddress(DynamicShared()) +
      static_cast<std::uint32_t>(Kernel::kQueriesAt + lane % 16 * Kernel::kRow + lane / 16 * 16);
  const auto queries = [&](int, int step, std::uint32_t(&a)[4]) {
    LoadMatrices(q_at + static_cast<std::uint32_t>(step * 32), a);
  };

  Warp sums;
  int stage = 0;
#pragma unroll 1
  for (int base = begin; base < keys.end; base += Kernel::kRound) {
    AwaitCopies<1>();
    __syncwarp();
    const std::uint32_t k = ring + static_cast<std::uint32_t>(stage * Kernel::kStage);
    typename Warp::Scores scores;
    Warp::Multiply(queries, k, scores);
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
    sums.Softmax(scores, args.log2_scale);
    sums.Accumulate(scores, k + kKeys * Kernel::kRow);
    __syncwarp();
    next = row_of(base + 3 * Kernel::kRound);
    if (base + 2 * Kernel::kRound < keys.end) load(stage);
    CommitCopies();
    rows = next;
    stage ^= 1;
  }
  sums.Finish(args.log2_scale);

  // The warps' sums, in their order.
  AwaitCopies<0>();
  __shared__ int spoiled[Kernel::kWarps];
  missing = __any_sync(kAllLanes, missing) != 0;
  __syncthreads();
  using Sums = WarpSums<Kernel::kWarps, kHeads, kDim>;
  static_assert(sizeof(Sums) <= Kernel::kShared);
  Sums& shared = *reinterpret_cast<Sums*>(DynamicShared());
  if (lane == 0) spoiled[warp] = missing;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = lane / 4 + 8 * half;
    if (head >= heads) continue;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const float pair[2] = {sums.out[0][n][2 * half], sums.out[0][n][2 * half + 1]};
      Store(pair, &shared.values[warp][head][8 * n + lane % 4 * 2]);
    }
    if (lane % 4 == 0) {
      shared.maxima[warp][head] = sums.most[0][half];
      shared.sums[warp][head] = sums.sum[0][half];
    }
  }
  __syncthreads();
  const std::int64_t units = args.plan.units_are_sequences ? args.sequences : args.rows;
  const int parts = p.head_dim / 4;
#pragma unroll 1
  for (int i = thread; i < heads * parts; i += Kernel::kThreads) {
    const int h = i / parts, dim = i % parts * 4;
    float highest = kNoKey;
#pragma unroll
    for (int w = 0; w < Kernel::kWarps; ++w) highest = fmaxf(highest, shared.maxima[w][h]);
    float total = 0, value[4] = {};
#pragma unroll
    for (int w = 0; w < Kernel::kWarps; ++w) {
      const float weight = Rescale(shared.maxima[w][h], highest);
      total = fmaf(shared.sums[w][h], weight, total);
      float part[4];
      Load(&shared.values[w][h][dim], part);
#pragma unroll
      for (int d = 0; d < 4; ++d) value[d] = fmaf(part[d], weight, value[d]);
      if (spoiled[w] != 0) total = NotANumber();
    }
    if (keys.splits == 1) {
      // No key: 0 / 0, the mean of no values.
      const std::int64_t element = (row * p.heads + first_head + h) * p.head_dim + dim;
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        StoreValue(value[d] / total, args.out, args.out_type, element + d);
      }
      continue;
    }
    const AttentionPart part(args, units, unit, first_head + h, args.plan.decode.most,
                             static_cast<int>(blockIdx.y));
    Store(value, part.values + dim);
    if (dim == 0) {
      part.maxima[part.index] = highest;
      part.sums[part.index] = total;
    }
  }
  if (keys.splits == 1 || !IsLastSplit(args.counters + blockIdx.x, keys.splits)) return;
#pragma unroll 1
  for (int i = thread; i < heads * parts; i += Kernel::kThreads) {
    const int head = first_head + i / parts;
    MergeParts(args, AttentionPart(args, units, unit, head, args.plan.decode.most, 0), keys.splits,
               i % parts * 4, (row * p.heads + head) * p.head_dim);
  }
}

template <class T>
cudaError_t LaunchDecode(const AttentionArgs& args, LaunchStream stream) {
  const AttentionParams& p = args.params;
  return WithHeadDim(p.head_dim, [&]<int kDim>(std::integral_constant<int, kDim>) {
    using Kernel = DecodeKernel<T, kDim>;
    const std::int64_t units = args.plan.units_are_sequences ? args.sequences : args.rows;
    return LaunchShared(&AttentionDecode<T, kDim>,
                        Blocks(units * DecodePieces(p), args.plan.decode.most), Kernel::kThreads,
                        Kernel::kShared, stream, args);
  });
}

template <class T>
cudaError_t AllowDecode(int head_dim) {
  return WithHeadDim(head_dim, []<int kDim>(std::integral_constant<int, kDim>) {
    return AllowShared(&AttentionDecode<T, kDim>, DecodeKernel<T, kDim>::kShared);
  });
}

}  // namespace culet::cuda_ops
