// Attention of one query row after the other: each block reads part of the keys and values that a
// row sees, once for all query heads of a key-value head. Serves decoding, where splits of the keys
// fill the machine, and prompts, row by row. FP32 lanes.
#pragma once

#include "kernels/cuda_ops/attention_keys.cuh"
#include "kernels/cuda_ops/attention_splits.cuh"
#include "kernels/cuda_ops/launch.cuh"

namespace culet::cuda_ops {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = 32 * kAttentionWarps;

/// Eight elements of a key or value row from dimension `at` on; 0 beyond the head.
template <class T>
__device__ __forceinline__ void LoadPart(const AttentionArgs& args, const void* rows,
                                         std::int64_t element, int at, float (&to)[8]) {
  const T* const from = static_cast<const T*>(rows) + element;
  if (args.wide) {
    if (at < args.params.head_dim) Load(from, to);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (at + i < args.params.head_dim) to[i] = ToFloat(from[i]);
  }
}

/// Sums `partial[i]` of all kLanes lanes for each of kKeys keys, a key a lane: that of the return
/// value's lane is kKeys * (lane in the group) / kLanes.
template <int kLanes, int kKeys>
__device__ __forceinline__ float SumOfOwnKey(float (&partial)[kKeys]) {
  static_assert(kKeys <= kLanes);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  int offset = kLanes / 2;
#pragma unroll
  for (int keys = kKeys / 2; keys > 0; keys /= 2, offset /= 2) {
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int i = 0; i < keys; ++i) {
      const float given = upper ? partial[i] : partial[i + keys];
      const float kept = upper ? partial[i + keys] : partial[i];
      partial[i] = kept + __shfl_xor_sync(kAllLanes, given, offset);
    }
  }
#pragma unroll
  for (; offset > 0; offset /= 2) {
    partial[0] += __shfl_xor_sync(kAllLanes, partial[0], offset);
  }
  return partial[0];
}

/// kLanes lanes take a row of K or V, eight dimensions each; a warp takes 32 / kLanes rows at a
/// time, kKeys times, for up to kHeads query heads.
template <class T, int kLanes, int kHeads, int kKeys>
__global__ void __launch_bounds__(kAttentionThreads)
    AttentionKernel(const __grid_constant__ AttentionArgs args) {
  WaitForPrevious();
  constexpr int kSlots = 32 / kLanes, kStep = kSlots * kKeys;
  constexpr int kWidth = kLanes * 8;
  __shared__ __align__(16) float queries[kHeads][kWidth];
  constexpr int kPieces = kAttentionThreads / kLanes;
  __shared__ __align__(16) float outs[kHeads][kPieces][kWidth];
  __shared__ float maxima[kHeads][kPieces], sums[kHeads][kPieces];
  const AttentionParams& p = args.params;
  const int group = p.heads / p.kv_heads, chunks = (group + kHeads - 1) / kHeads;
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(p.kv_heads * chunks);
  const int piece = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.kv_heads * chunks));
  const int kv_head = piece / chunks, in_group = piece % chunks * kHeads;
  const int first_head = kv_head * group + in_group;
  const int heads = min(kHeads, group - in_group);
  const int split = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int at = lane % kLanes * 8;  // this lane's dimensions

  // Each split takes whole rounds of all warps, as even as that allows.
  const KeyRange range(args, row);
  constexpr std::int64_t kRound = kAttentionWarps * kStep;
  const std::int64_t count = range.last - range.first;
  const std::int64_t share =
      ((count + args.plan.lanes.most - 1) / args.plan.lanes.most + kRound - 1) / kRound * kRound;
  const std::int64_t begin = range.first + split * share;
  const std::int64_t end = begin + share < range.last ? begin + share : range.last;

  const float scale = args.log2_scale * KeyScale<T>(args, kv_head);
  for (int i = thread; i < heads * kWidth; i += kAttentionThreads) {
    const int head = i / kWidth, dim = i % kWidth;
    const std::int64_t index = (row * p.heads + first_head + head) * p.head_dim + dim;
    queries[head][dim] = dim < p.head_dim ? LoadValue(args.q, args.q_type, index) * scale : 0.0f;
  }
  __syncthreads();

  float out[kHeads][8] = {};
  float most[kHeads], sum[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) most[h] = kNoKey, sum[h] = 0;
  bool missing = false;
  constexpr int kBeyond = -2;  // not a key of this split
  const auto row_of = [&](std::int64_t base) {
    const std::int64_t key = base + lane % kStep;
    return key < end ? range.RowOf(args, key) : kBeyond;
  };
  std::int64_t base = begin + warp * kStep;
  int next = row_of(base);
  for (; base < end; base += kRound) {
    const int rows = next;
    missing |= rows == -1;
    float k[kKeys][8] = {}, v[kKeys][8] = {};
    bool there[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int at_row = __shfl_sync(kAllLanes, rows, lane / kLanes * kKeys + i);
      there[i] = at_row >= 0;
      if (!there[i]) continue;
      const std::int64_t element = (std::int64_t{at_row} * p.kv_heads + kv_head) * p.head_dim + at;
      LoadPart<T>(args, args.k, element, at, k[i]);
      LoadPart<T>(args, args.v, element, at, v[i]);
    }
    next = row_of(base + kRound);
    // The key whose score this lane gets.
    const int own = lane % kLanes * kKeys / kLanes;
    bool own_there = there[0];
#pragma unroll
    for (int i = 1; i < kKeys; ++i) own_there = own == i ? there[i] : own_there;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= heads) break;
      float q[8];
      Load(&queries[h][at], q);
      float partial[kKeys] = {};
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
#pragma unroll
        for (int d = 0; d < 8; ++d) partial[i] = fmaf(q[d], k[i][d], partial[i]);
      }
      float score = SumOfOwnKey<kLanes>(partial);
      if (args.log2_cap > 0) score = Capped(score, args.log2_cap);
      if (!own_there) score = kNoKey;
      float highest = score;
#pragma unroll
      for (int offset = kLanes / 2; offset >= kLanes / kKeys; offset /= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, offset));
      }
      highest = fmaxf(most[h], highest);
      const float rescale = Rescale(most[h], highest);
      const float weight = own_there ? exp2f(score - highest) : 0.0f;
      most[h] = highest;
      sum[h] = fmaf(sum[h], rescale, weight);
#pragma unroll
      for (int d = 0; d < 8; ++d) out[h][d] *= rescale;
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const float w =
            __shfl_sync(kAllLanes, weight, lane / kLanes * kLanes + i * (kLanes / kKeys));
#pragma unroll
        for (int d = 0; d < 8; ++d) out[h][d] = fmaf(w, v[i][d], out[h][d]);
      }
    }
  }
  missing = __any_sync(kAllLanes, missing);

  // Slots of all warps leave what they have, and their sum is taken in their order.
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h >= heads) break;
#pragma unroll
    for (int offset = kLanes / 2; offset >= kLanes / kKeys; offset /= 2) {
      sum[h] += __shfl_xor_sync(kAllLanes, sum[h], offset);
    }
    const int slot = thread / kLanes;
    Store(out[h], &outs[h][slot][at]);
    if (lane % kLanes == 0) {
      maxima[h][slot] = most[h];
      sums[h][slot] = missing ? NotANumber() : sum[h];
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < heads * p.head_dim; i += kAttentionThreads) {
    const int h = i / p.head_dim, dim = i - h * p.head_dim;
    float highest = maxima[h][0], total = 0, value = 0;
#pragma unroll 1
    for (int slot = 1; slot < kPieces; ++slot) highest = fmaxf(highest, maxima[h][slot]);
#pragma unroll 1
    for (int slot = 0; slot < kPieces; ++slot) {
      const float weight = Rescale(maxima[h][slot], highest);
      total = fmaf(sums[h][slot], weight, total);
      value = fmaf(outs[h][slot][dim], weight, value);
    }
    value *= ValueScale<T>(args, kv_head);
    if (args.plan.lanes.most == 1) {
      total = WithSink(args, first_head + h, highest, total);
      // No key: 0 / 0, the mean of no values.
      StoreValue(value / total, args.out, args.out_type,
                 (row * p.heads + first_head + h) * p.head_dim + dim);
      continue;
    }
    const AttentionPart part(args, args.rows, row, first_head + h, args.plan.lanes.most, split);
    part.values[dim] = value;
    if (dim == 0) {
      part.maxima[part.index] = highest;
      part.sums[part.index] = total;
    }
  }
}

/// The kernel for a head size and a group, of one type of K and V.
template <class T>
cudaError_t LaunchAttention(const AttentionArgs& args, LaunchStream stream) {
  const AttentionParams& p = args.params;
  const auto launch = [&](auto kernel, int heads) {
    const std::int64_t pieces = p.kv_heads * CeilDiv(p.heads / p.kv_heads, heads);
    return Launch(kernel, Blocks(args.rows * pieces, args.plan.lanes.most), kAttentionThreads,
                  stream, args);
  };
  const auto by_heads = [&]<int kLanes>(std::integral_constant<int, kLanes>) {
    const int group = p.heads / p.kv_heads;
    // Larger groups are several blocks, which share what they read in the second-level cache.
    return group <= 4 ? launch(&AttentionKernel<T, kLanes, 4, 4>, 4)
                      : launch(&AttentionKernel<T, kLanes, 8, 4>, 8);
  };
  if (p.head_dim <= 64) return by_heads(std::integral_constant<int, 8>{});
  if (p.head_dim <= 128) return by_heads(std::integral_constant<int, 16>{});
  return by_heads(std::integral_constant<int, 32>{});
}

cudaError_t AttentionOfFloat32(const AttentionArgs& args, LaunchStream stream);
cudaError_t AttentionOfBfloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t AttentionOfFloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t AttentionOfE4m3(const AttentionArgs& args, LaunchStream stream);

}  // namespace culet::cuda_ops
