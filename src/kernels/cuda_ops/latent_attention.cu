// Latent attention in FP32, row by row, over caches of float32, float16 and bfloat16.
#include "kernels/cuda_ops/latent_attention.cuh"

#include <algorithm>

#include "kernels/cuda_ops/launch.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = 8;  // query heads of a block
constexpr int kKeys = 32;  // that pass by together: a warp's lanes
constexpr int kColumns = kMostLatentValue / kThreads;

// What a split found of each row and head: the largest score, the sum of the weights, and the
// weighed values, not divided.
struct Parts {
  float *most, *sums, *values;

  __device__ Parts(const AttentionArgs& args, std::int64_t row, int head, int split) {
    const AttentionParams& p = args.params;
    const std::int64_t splits = args.plan.lanes.most;
    const std::int64_t all = args.rows * p.heads * splits;
    const std::int64_t index = (row * p.heads + head) * splits + split;
    most = static_cast<float*>(args.workspace) + index;
    sums = most + all;
    values = static_cast<float*>(args.workspace) + 2 * all + index * p.value_dim;
  }
};

// The score of a query and a key, times log2 e.
__device__ __forceinline__ float ScoreOf(float product, const AttentionArgs& args) {
  const float score = product * args.log2_scale;
  return args.log2_cap > 0 ? Capped(score, args.log2_cap) : score;
}

// A block takes a row, some query heads of a key-value head, and a split of the keys. Scores: a
// warp takes a key at a time, its lanes elements of it. Values: a thread takes columns.
template <class T, int kWide>
__global__ void __launch_bounds__(kThreads, 2)
    LatentAttentionKernel(const __grid_constant__ AttentionArgs args) {
  WaitForPrevious();
  __shared__ __align__(16) float queries[kHeads][kMostLatentKey];
  __shared__ __align__(16) float weights[kKeys][kHeads];  // first the scores
  __shared__ std::int64_t places[kKeys];
  __shared__ float shrinks[kHeads];
  const AttentionParams& p = args.params;
  const int group = p.heads / p.kv_heads;
  const int pieces = (group + kHeads - 1) / kHeads;
  const auto block = static_cast<int>(blockIdx.x);
  const int splits = args.plan.lanes.most;
  const int split = block % splits, piece = block / splits % pieces;
  const int kv_head = block / splits / pieces % p.kv_heads;
  const std::int64_t row = block / splits / pieces / p.kv_heads;
  const int first_head = kv_head * group + piece * kHeads;
  const int heads = min(kHeads, group - piece * kHeads);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;

  const KeyRange range(args, row);
  const std::int64_t count = range.sequence < 0 ? 0 : range.last - range.first;
  const std::int64_t share = ((count + splits - 1) / splits + kKeys - 1) / kKeys * kKeys;
  const std::int64_t begin = min(range.first + split * share, range.last);
  const std::int64_t end = count > 0 ? min(begin + share, range.last) : begin;

  for (int i = static_cast<int>(threadIdx.x); i < kHeads * p.head_dim; i += kThreads) {
    const int head = i / p.head_dim, at = i - head * p.head_dim;
    queries[head][at] =
        head < heads
            ? LoadValue(args.q, args.q_type, (row * p.heads + first_head + head) * p.head_dim + at)
            : 0.0f;
  }
  // Of warp `head`: all lanes have the same.
  float most = kNoKey, sum = 0;
  float totals[kColumns][kHeads] = {};
  const std::int64_t cols = std::int64_t{p.kv_heads} * p.head_dim;
  const T* const keys = static_cast<const T*>(args.k) + std::int64_t{kv_head} * p.head_dim;
  for (std::int64_t start = begin; start < end; start += kKeys) {
    const int seen = static_cast<int>(min(end - start, std::int64_t{kKeys}));
    __syncthreads();  // weights and places are read
    if (static_cast<int>(threadIdx.x) < seen) {
      places[threadIdx.x] = range.RowOf(args, start + threadIdx.x);
    }
    __syncthreads();
    for (int j = warp; j < seen; j += kWarps) {
      const std::int64_t place = places[j];
      const T* const key = keys + (place < 0 ? 0 : place) * cols;
      float products[kHeads] = {};
      for (int i = lane * kWide; i < p.head_dim; i += 32 * kWide) {
        float elements[kWide];
        Load(key + i, elements);
#pragma unroll
        for (int head = 0; head < kHeads; ++head) {
#pragma unroll
          for (int e = 0; e < kWide; ++e) {
            products[head] = fmaf(queries[head][i + e], elements[e], products[head]);
          }
        }
      }
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        const float product = SumLanes<32>(products[head]);
        if (lane == head) {
          weights[j][head] = place < 0 ? NotANumber() : ScoreOf(product, args);
        }
      }
    }
    __syncthreads();
    if (warp < kHeads) {
      const float score = lane < seen ? weights[lane][warp] : kNoKey;
      const float before = most;
      most = fmaxf(most, MaxLanes<32>(score));
      const float shrink = Rescale(before, most);
      // The maximum of nothing but -inf, or of what is no number, is no shift.
      const float weight = lane < seen ? exp2f(score - most) : 0.0f;
      sum = fmaf(sum, shrink, SumLanes<32>(weight));
      if (lane < seen) weights[lane][warp] = weight;
      if (lane == 0) shrinks[warp] = shrink;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = c * kThreads + static_cast<int>(threadIdx.x);
      if (column >= p.value_dim) break;
#pragma unroll
      for (int head = 0; head < kHeads; ++head) totals[c][head] *= shrinks[head];
#pragma unroll 4
      for (int j = 0; j < seen; ++j) {
        const std::int64_t place = places[j] < 0 ? 0 : places[j];
        const float value = ToFloat(keys[place * cols + column]);
#pragma unroll
        for (int head = 0; head < kHeads; ++head) {
          totals[c][head] = fmaf(weights[j][head], value, totals[c][head]);
        }
      }
    }
  }
  __syncthreads();
  if (splits == 1 && warp < heads && lane == 0) {
    shrinks[warp] = WithSink(args, first_head + warp, most, sum);
  }
  if (splits > 1 && warp < heads && lane == 0) {
    const Parts parts(args, row, first_head + warp, split);
    *parts.most = most;
    *parts.sums = sum;
  }
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int column = c * kThreads + static_cast<int>(threadIdx.x);
    if (column >= p.value_dim) break;
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      if (head >= heads) break;
      if (splits > 1) {
        Parts(args, row, first_head + head, split).values[column] = totals[c][head];
      } else {
        StoreValue(totals[c][head] / shrinks[head], args.out, args.out_type,
                   (row * p.heads + first_head + head) * p.value_dim + column);
      }
    }
  }
}

// A block for each row and head; splits in their order, so that the bits are always the same.
__global__ void __launch_bounds__(kThreads)
    MergeLatent(const __grid_constant__ AttentionArgs args) {
  WaitForPrevious();
  const AttentionParams& p = args.params;
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(p.heads);
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.heads));
  const Parts first(args, row, head, 0);
  float highest = kNoKey;
  for (int split = 0; split < args.plan.lanes.most; ++split) {
    highest = fmaxf(highest, first.most[split]);
  }
  for (int column = static_cast<int>(threadIdx.x); column < p.value_dim; column += kThreads) {
    float sum = 0, value = 0;
    for (int split = 0; split < args.plan.lanes.most; ++split) {
      const float share = Rescale(first.most[split], highest);
      sum = fmaf(first.sums[split], share, sum);
      value = fmaf(first.values[std::int64_t{split} * p.value_dim + column], share, value);
    }
    sum = WithSink(args, head, highest, sum);
    StoreValue(value / sum, args.out, args.out_type, (row * p.heads + head) * p.value_dim + column);
  }
}

std::int64_t BlocksOfRow(const AttentionParams& p) {
  return p.kv_heads * CeilDiv(p.heads / p.kv_heads, kHeads);
}

}  // namespace

AttentionPlan PlanLatentAttention(const AttentionShape& shape, int multiprocessors) {
  constexpr int kResident = 2, kLeastKeys = 2 * kKeys;
  const AttentionParams& p = shape.params;
  AttentionPlan plan;
  plan.latent = true;
  const std::int64_t blocks = std::max<std::int64_t>(shape.rows * BlocksOfRow(p), 1);
  const std::int64_t wanted = std::min(std::int64_t{kResident} * multiprocessors / blocks,
                                       CeilDiv(shape.most_keys, kLeastKeys));
  plan.lanes.most = static_cast<int>(std::clamp<std::int64_t>(wanted, 1, kMostSplits));
  if (plan.lanes.most == 1) return plan;
  const std::int64_t parts = shape.rows * p.heads * plan.lanes.most;
  plan.workspace_bytes = static_cast<std::size_t>(parts * (2 + p.value_dim)) * sizeof(float);
  return plan;
}

cudaError_t LatentAttention(const AttentionArgs& args, LaunchStream stream) {
  const AttentionParams& p = args.params;
  const dim3 grid = Blocks(args.rows * BlocksOfRow(p) * args.plan.lanes.most);
  const cudaError_t error = WithStored(args.kv_type, [&]<class T>(T) {
    return IsWide(p.head_dim, static_cast<const char*>(args.k))
               ? Launch(&LatentAttentionKernel<T, 8>, grid, kThreads, stream, args)
               : Launch(&LatentAttentionKernel<T, 1>, grid, kThreads, stream, args);
  });
  if (error != cudaSuccess || args.plan.lanes.most == 1) return error;
  return Launch(&MergeLatent, Blocks(args.rows * p.heads), kThreads, stream, args);
}

}  // namespace culet::cuda_ops
