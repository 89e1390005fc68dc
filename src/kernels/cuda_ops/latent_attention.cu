// Latent attention: the choice of a kernel, and the one in FP32, row by row, over caches of
// float32, float16 and bfloat16.
#include "kernels/cuda_ops/latent_attention.cuh"

#include <algorithm>

#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/attention_splits.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = 8;  // query heads of a block
constexpr int kKeys = 32;  // that pass by together: a warp's lanes
constexpr int kColumns = kMostLatentValue / kThreads;

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
    const AttentionPart part(args, args.rows, row, first_head + warp, splits, split);
    part.maxima[part.index] = most;
    part.sums[part.index] = sum;
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
        AttentionPart(args, args.rows, row, first_head + head, splits, split).values[column] =
            totals[c][head];
      } else {
        StoreValue(totals[c][head] / shrinks[head], args.out, args.out_type,
                   (row * p.heads + first_head + head) * p.value_dim + column);
      }
    }
  }
}

std::int64_t BlocksOfRow(const AttentionParams& p) {
  return p.kv_heads * CeilDiv(p.heads / p.kv_heads, kHeads);
}

// The plan of the kernels on tensor cores, which take tiles of queries of a sequence.
void PlanTiles(const AttentionShape& shape, int multiprocessors, bool wgmma, AttentionPlan& plan) {
  const AttentionParams& p = shape.params;
  const std::int64_t queries = shape.rows * (p.heads / p.kv_heads);
  const std::int64_t sequences = std::clamp<std::int64_t>(shape.sequences, 1, shape.rows);
  const bool many = queries > 16 * sequences;  // of a sequence, so that few keys serve many
  plan.wgmma = wgmma && many && p.softcap == 0 && WgmmaBox(p.block_size) > 0;
  plan.latent_queries = plan.wgmma ? kLatentWgmmaQueries : many ? 32 : 16;
  // Hopper has the shared memory for many stages.
  plan.tiles.stages = wgmma ? kManyLatentStages : 2;
  const int resident = wgmma || many ? 1 : 2;
  const std::int64_t blocks = shape.sequences > 1
                                  ? TileBlocks(p, shape.rows, shape.sequences, plan.latent_queries)
                                  : CeilDiv(queries, plan.latent_queries) * p.kv_heads;
  const std::int64_t places = std::int64_t{resident} * multiprocessors;
  plan.tiles.least = kSplitStep;
  const auto most = static_cast<int>(std::clamp<std::int64_t>(
      std::min(places / std::max<std::int64_t>(blocks, 1), CeilDiv(shape.most_keys, kSplitStep)), 1,
      kMostSplits));
  plan.tiles.even = plan.tiles.most = most;
}

}  // namespace

AttentionPlan PlanLatentAttention(const AttentionShape& shape, bool exact, int multiprocessors,
                                  bool wgmma) {
  const AttentionParams& p = shape.params;
  const bool halves = shape.kv_type == DataType::kBfloat16 || shape.kv_type == DataType::kFloat16;
  AttentionPlan plan;
  plan.latent = true;
  plan.tensor_cores =
      !exact && halves && p.head_dim == kMostLatentKey && p.value_dim == kMostLatentValue;
  if (plan.tensor_cores) {
    PlanTiles(shape, multiprocessors, wgmma, plan);
  } else {
    constexpr int kResident = 2, kLeastKeys = 2 * kKeys;
    const std::int64_t blocks = std::max<std::int64_t>(shape.rows * BlocksOfRow(p), 1);
    const std::int64_t wanted = std::min(std::int64_t{kResident} * multiprocessors / blocks,
                                         CeilDiv(shape.most_keys, kLeastKeys));
    plan.lanes.most = static_cast<int>(std::clamp<std::int64_t>(wanted, 1, kMostSplits));
  }
  const int splits = plan.tensor_cores ? plan.tiles.most : plan.lanes.most;
  if (splits == 1) return plan;
  const std::int64_t parts = shape.rows * p.heads * splits;
  plan.workspace_bytes = static_cast<std::size_t>(parts * (2 + p.value_dim)) * sizeof(float);
  return plan;
}

cudaError_t PrepareLatentAttention(const AttentionShape& shape, const AttentionPlan& plan) {
  if (!plan.tensor_cores) return cudaSuccess;
  const bool bf16 = shape.kv_type == DataType::kBfloat16;
  if (plan.wgmma) return bf16 ? AllowLatentWgmmaOfBfloat16() : AllowLatentWgmmaOfFloat16();
  return bf16 ? AllowLatentMmaOfBfloat16(plan) : AllowLatentMmaOfFloat16(plan);
}

cudaError_t LatentAttention(const AttentionArgs& args, LaunchStream stream, int* splits) {
  const AttentionParams& p = args.params;
  const auto address = [](const void* pointer) { return static_cast<const char*>(pointer); };
  if (args.plan.tensor_cores &&
      IsWide(p.head_dim, address(args.q), address(args.k), address(args.out))) {
    *splits = args.plan.tiles.most;
    const bool bf16 = args.kv_type == DataType::kBfloat16;
    if (args.plan.wgmma) {
      return bf16 ? LatentWgmmaOfBfloat16(args, stream) : LatentWgmmaOfFloat16(args, stream);
    }
    return bf16 ? LatentMmaOfBfloat16(args, stream) : LatentMmaOfFloat16(args, stream);
  }
  *splits = args.plan.lanes.most;
  const dim3 grid = Blocks(args.rows * BlocksOfRow(p) * args.plan.lanes.most);
  return WithStored(args.kv_type, [&]<class T>(T) {
    return IsWide(p.head_dim, address(args.k))
               ? Launch(&LatentAttentionKernel<T, 8>, grid, kThreads, stream, args)
               : Launch(&LatentAttentionKernel<T, 1>, grid, kThreads, stream, args);
  });
}

}  // namespace culet::cuda_ops
