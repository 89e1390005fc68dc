// Latent attention on tensor cores of every GPU: a block takes 16 or 32 queries of one sequence,
// rows and heads together, and part of the keys. A key comes into shared memory once; its first 512
// elements are the value. Warps share a tile of 32 keys two ways: for scores each takes 16 keys and
// every fourth 16 elements of them, for values 64 columns of all.
#pragma once

#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/latent_attention.cuh"
#include "kernels/cuda_ops/latent_tile.cuh"

namespace culet::cuda_ops {

template <int kBlocks, int kStages>
struct LatentMmaKernel {
  static constexpr int kQueries = 16 * kBlocks, kKeys = 32, kThreads = 256;
  static constexpr int kResident = kBlocks == 1 && kStages == 2 ? 2 : 1;  // on a multiprocessor
  using Rows = SharedRows<kLatentRow>;
  static constexpr int kStageBytes = kKeys * Rows::kRow;
  // Shared memory: a ring of tiles of keys, of which the last holds the queries first and the first
  // ones the sums in the end; the parts of scores; weights; the rows of keys; what queries see, and
  // what all of them do; of each query the factor of its sums.
  static constexpr int kSteps = kMostLatentKey / 16 / 4;                   // of a warp's quarter
  static constexpr int kPartRow = kKeys + 8, kPart = kQueries * kPartRow;  // floats
  static constexpr int kWeightRow = kSharedRow<kKeys>;
  static constexpr int kPartsAt = kStages * kStageBytes;
  static constexpr int kWeightsAt = kPartsAt + 4 * kPart * 4;
  static constexpr int kRowsAt = kWeightsAt + kQueries * kWeightRow;
  static constexpr int kSeenAt = kRowsAt + kStages * kKeys * 4;
  static constexpr int kBoundsAt = kSeenAt + 32 * static_cast<int>(sizeof(int2));
  static constexpr int kFactorsAt = kBoundsAt + static_cast<int>(sizeof(int4));
  static constexpr int kShared = kFactorsAt + kQueries * 4;
  static_assert(kStages >= 2 && kPartsAt % 16 == 0 && kWeightsAt % 16 == 0 && kSeenAt % 16 == 0);
  static_assert(kQueries <= kKeys, "the queries are in a stage");
  static_assert(kQueries * kLatentSumsRow<kMostLatentValue> * 4 <= kStages * kStageBytes);
};

/// Requires: keys of T, everything in whole vectors.
template <class T, int kBlocks, int kStages>
__global__ void __launch_bounds__(LatentMmaKernel<kBlocks, kStages>::kThreads,
                                  LatentMmaKernel<kBlocks, kStages>::kResident)
    LatentMma(const __grid_constant__ AttentionArgs args) {
  BeginLatent(args);
  using Kernel = LatentMmaKernel<kBlocks, kStages>;
  using Rows = typename Kernel::Rows;
  constexpr int kKeys = Kernel::kKeys, kQueries = Kernel::kQueries, kSteps = Kernel::kSteps;
  const AttentionParams& p = args.params;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  char* const memory = DynamicShared();
  const std::uint32_t shared = SharedAddress(memory);
  float* const parts = reinterpret_cast<float*>(memory + Kernel::kPartsAt);
  int* const key_rows = reinterpret_cast<int*>(memory + Kernel::kRowsAt);
  int2* const seen = reinterpret_cast<int2*>(memory + Kernel::kSeenAt);
  float* const factors = reinterpret_cast<float*>(memory + Kernel::kFactorsAt);

  LatentTile of;
  of.group = p.heads / p.kv_heads;
  of.kv_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.kv_heads));
  of.tile = Tile(args, static_cast<int>(blockIdx.x / static_cast<unsigned>(p.kv_heads)), of.group,
                 kQueries);
  if (of.tile.count == 0) return AwaitLatentInputs(args);
  const auto split = static_cast<int>(blockIdx.y);
  const SeenKeys found = FindSeenKeys<32>(args, of.tile, of.group, seen,
                                          reinterpret_cast<int4*>(memory + Kernel::kBoundsAt),
                                          [] { __syncthreads(); });
  const SplitKeys keys(args.plan.tiles, min(found.first, found.last), found.last);
  if (keys.idle()) {
    AwaitLatentInputs(args);
    StoreNoKeys(args, of, split);
    return;
  }
  const int begin = keys.begin, end = keys.end;
  const int2 all_see = make_int2(found.all_first, min(found.all_last, end));
  const int tiles = (end - begin + kKeys - 1) / kKeys;

  // Eight threads copy a key, 16 bytes of every 128 each.
  KeyRange range;
  range.sequence = of.tile.sequence;
  const auto row_of = [&](int j) {
    const int key = begin + j * kKeys + thread / 8;
    return key < end ? range.RowOf(args, key) : kBeyond;
  };
  const int own_piece = Rows::Offset(thread / 8, thread % 8);
  const auto load = [&](int stage, int row) {
    const char* const from = static_cast<const char*>(args.k) +
                             (std::int64_t{max(row, 0)} * p.kv_heads + of.kv_head) * kLatentRow +
                             thread % 8 * 16;
    const auto to = shared + static_cast<std::uint32_t>(stage * Kernel::kStageBytes + own_piece);
#pragma unroll
    for (int i = 0; i < kLatentRow / 128; ++i) {
      CopyAsync16(to + static_cast<std::uint32_t>(i * 128), from + i * 128, row >= 0 ? 16 : 0);
    }
    if (thread % 8 == 0) key_rows[stage * kKeys + thread / 8] = row;
  };
  const int old = OldLatentKeys(args, found.last);
  bool waits = true;
#pragma unroll 1
  for (int j = 0; j < kStages - 1; ++j) {
    if (waits && begin + (j + 1) * kKeys > old) AwaitLatentInputs(args), waits = false;
    if (j < tiles) load(j, row_of(j));
    CommitCopies();
  }
  if (waits) AwaitLatentInputs(args);
  int next = row_of(kStages - 1);

  // This warp's part of the queries stays in registers.
  char* const queries = memory + (kStages - 1) * Kernel::kStageBytes;
  for (int i = thread; i < kQueries * (kLatentRow / 16); i += Kernel::kThreads) {
    const int query = i / (kLatentRow / 16), piece = i % (kLatentRow / 16);
    const std::int64_t element =
        (of.row(query) * p.heads + of.head(query)) * std::int64_t{kMostLatentKey};
    *reinterpret_cast<uint4*>(queries + Rows::Offset(query, piece)) =
        query < of.tile.count ? LoadQuery<T>(args, element, piece * 8) : make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  const int quarter = warp / 2, half_of_keys = warp % 2;
  std::uint32_t q[kBlocks][kSteps][4];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const std::uint32_t at =
        SharedAddress(queries) +
        static_cast<std::uint32_t>(Rows::Offset(block * 16 + lane % 16, quarter * 2 + lane / 16));
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      LoadMatrices(at + static_cast<std::uint32_t>(step * 128), q[block][step]);
    }
  }

  // For the softmax kLanes neighbouring threads take a query, kOwn keys each.
  constexpr int kOwn = 2 * kBlocks, kLanes = kKeys / kOwn;
  const int own_query = thread / kLanes, own_key = thread % kLanes * kOwn;
  const int2 own_seen = seen[own_query];
  float most = kNoKey, sum = 0;  // times log2 e
  float out[kBlocks][8][4] = {};
  int stage = 0;
#pragma unroll 1
  for (int j = 0; j < tiles; ++j) {
    const int base = begin + j * kKeys;
    AwaitCopies<kStages - 2>();
    __syncthreads();  // the keys are there, the stage before has been used
    if (j + kStages - 1 < tiles) load(stage == 0 ? kStages - 1 : stage - 1, next);
    CommitCopies();
    next = row_of(j + kStages);
    char* const tile = memory + stage * Kernel::kStageBytes;
    {
      float scores[kBlocks][2][4] = {};
      const std::uint32_t at =
          SharedAddress(tile) +
          static_cast<std::uint32_t>(Rows::Offset(half_of_keys * 16 + lane / 16 * 8 + lane % 8,
                                                  quarter * 2 + lane / 8 % 2));
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        std::uint32_t b[4];
        LoadMatrices(at + static_cast<std::uint32_t>(step * 128), b);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          MultiplyAdd<T>(scores[block][0], q[block][step], b[0], b[1]);
          MultiplyAdd<T>(scores[block][1], q[block][step], b[2], b[3]);
        }
      }
      float* const part = parts + quarter * Kernel::kPart + lane / 4 * Kernel::kPartRow +
                          half_of_keys * 16 + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < kBlocks * 4; ++i) {
        const int block = i / 4, n = i / 2 % 2, below = i % 2;
        const float pair[2] = {scores[block][n][2 * below], scores[block][n][2 * below + 1]};
        Store(pair, part + (block * 16 + below * 8) * Kernel::kPartRow + n * 8);
      }
    }
    __syncthreads();  // all parts of the scores are there
    const bool masked = base < all_see.x || base + kKeys > all_see.y;
    bool spoiled = false;
    {
      float scores[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) scores[i] = 0;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        float of_part[kOwn];
        Load(parts + part * Kernel::kPart + own_query * Kernel::kPartRow + own_key, of_part);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) scores[i] += of_part[i];
      }
      float highest = most;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        float& score = scores[i];
        score *= args.log2_scale;
        // A NaN or an infinity in a key is in its scores, too.
        if (masked && !IsFinite(score)) score = NotANumber(), spoiled = true;
        if (args.log2_cap > 0) score = Capped(score, args.log2_cap);
        const int key = base + own_key + i;
        if (key_rows[stage * kKeys + own_key + i] == -1) score = NotANumber();
        if (key < own_seen.x || key >= min(own_seen.y, end)) score = kNoKey;
        highest = fmaxf(highest, score);
      }
      highest = MaxLanes<kLanes>(highest);
      // Without a key yet there is no difference of infinities.
      const float shift = highest == kNoKey ? 0.0f : highest;
      const float rescale = FastExp2(most - shift);
      most = highest;
      float total = 0;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        scores[i] = FastExp2(scores[i] - shift);
        total += scores[i];
      }
      sum = fmaf(sum, rescale, total);
      auto* const weights = reinterpret_cast<std::uint32_t*>(
          memory + Kernel::kWeightsAt + own_query * Kernel::kWeightRow + own_key * 2);
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        weights[i] = PackPair<T>(scores[2 * i], scores[2 * i + 1]);
      }
      if (own_key == 0) factors[own_query] = rescale;
    }
    if (masked) {
      // Of queries that may not see the key, a weight of zero would not undo its value.
      if (__syncthreads_or(spoiled) != 0) {
        constexpr int kOfKey = kMostLatentValue / 2;
#pragma unroll 1
        for (int i = thread; i < kKeys * kOfKey; i += Kernel::kThreads) {
          auto* const pair = reinterpret_cast<std::uint32_t*>(
              tile + Rows::Offset(i / kOfKey, i % kOfKey / 4) + i % 4 * 4);
          *pair = FiniteOrZero<T>(*pair);
        }
        __syncthreads();
      }
    } else {
      __syncthreads();  // weights and factors are there
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        const float factor = factors[block * 16 + below * 8 + lane / 4];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          out[block][n][2 * below] *= factor;
          out[block][n][2 * below + 1] *= factor;
        }
      }
    }
    const std::uint32_t weights_at =
        shared + static_cast<std::uint32_t>(Kernel::kWeightsAt + lane % 16 * Kernel::kWeightRow +
                                            lane / 16 * 16);
    const std::uint32_t values_at = SharedAddress(tile) + static_cast<std::uint32_t>(Rows::Offset(
                                                              lane % 16, warp * 8 + lane / 16));
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      std::uint32_t a[kBlocks][4];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        LoadMatrices(
            weights_at + static_cast<std::uint32_t>(block * 16 * Kernel::kWeightRow + step * 32),
            a[block]);
      }
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        std::uint32_t b[4];
        LoadTransposed(Rows::Below(Rows::Behind(values_at, pair * 32), step * 16), b);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          MultiplyAdd<T>(out[block][2 * pair], a[block], b[0], b[1]);
          MultiplyAdd<T>(out[block][2 * pair + 1], a[block], b[2], b[3]);
        }
      }
    }
    if (++stage == kStages) stage = 0;
  }
  sum = SumLanes<kLanes>(sum);
  __syncthreads();  // keys and factors have been used
  if (own_key == 0) {
    factors[own_query] = FinishLatentQuery(args, of, own_query, split, most, sum);
  }
  float* const sums = reinterpret_cast<float*>(memory);
  constexpr int kRow = kLatentSumsRow<kMostLatentValue>;
#pragma unroll
  for (int i = 0; i < 2 * kBlocks; ++i) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float pair[2] = {out[i / 2][n][i % 2 * 2], out[i / 2][n][i % 2 * 2 + 1]};
      Store(pair, sums + (i * 8 + lane / 4) * kRow + warp * 64 + n * 8 + lane % 4 * 2);
    }
  }
  __syncthreads();
  StoreLatentSums<kMostLatentValue, Kernel::kThreads>(args, of, split, sums, factors, 0, thread);
}

/// function(kernel, its shared memory, its queries) for the plan's kernel.
template <class T, class Function>
cudaError_t WithLatentMma(const AttentionPlan& plan, Function&& function) {
  const auto of = [&]<int kBlocks, int kStages>(std::integral_constant<int, kBlocks>,
                                                std::integral_constant<int, kStages>) {
    using Kernel = LatentMmaKernel<kBlocks, kStages>;
    return function(&LatentMma<T, kBlocks, kStages>, Kernel::kShared, Kernel::kThreads);
  };
  const auto of_blocks = [&](auto blocks) {
    return plan.tiles.stages == kManyLatentStages
               ? of(blocks, std::integral_constant<int, kManyLatentStages>{})
               : of(blocks, std::integral_constant<int, 2>{});
  };
  return plan.latent_queries == 32 ? of_blocks(std::integral_constant<int, 2>{})
                                   : of_blocks(std::integral_constant<int, 1>{});
}

template <class T>
cudaError_t AllowLatentMma(const AttentionPlan& plan) {
  return WithLatentMma<T>(plan,
                          [](auto kernel, int shared, int) { return AllowShared(kernel, shared); });
}

template <class T>
cudaError_t LaunchLatentMma(const AttentionArgs& args, LaunchStream stream) {
  const AttentionPlan& plan = args.plan;
  const dim3 grid = Blocks(TileBlocks(args.params, args.rows, args.sequences, plan.latent_queries),
                           plan.tiles.most);
  return WithLatentMma<T>(plan, [&](auto kernel, int shared, int threads) {
    return LaunchShared(kernel, grid, threads, shared, stream, args);
  });
}

}  // namespace culet::cuda_ops
