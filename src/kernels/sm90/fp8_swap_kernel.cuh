// Block-scaled FP8 products with few tokens: D^T = B A^T on a 64G x N tile, K split over a cluster.
//
// Bound by the weights' bytes, so everything here serves the stream: loads of the weights start
// before anything else (before griddepcontrol.wait under programmatic dependent launch), a CTA's
// shared memory is one deep ring, and CTAs are small enough that several share a multiprocessor and
// that the next kernel's CTAs fit beside this one's.
//
// Warps: 4G consumers; one that loads both operands; one that multiplies their scales, and loads
// the first activations where the weights came early. A k-block is 128 deep and is promoted to FP32
// registers with its scales (the tensor core keeps 14 bits of an FP8 sum). The partial sums of a
// cluster's CTAs meet in shared memory through st.async; each sum is taken in rank order, so
// results repeat bit for bit.
#pragma once

#include <cstdint>

#include "kernels/sm90/fp8_swap_config.cuh"
#include "sm90/descriptor.h"
#include "sm90/epilogue.cuh"
#include "sm90/fragment.cuh"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::sm90 {

/// WgmmaWait with a count that is constant once loops are unrolled.
__device__ __forceinline__ void WaitForAllBut(int pending) {
  switch (pending) {
    case 0:
      WgmmaWait<0>();
      break;
    case 1:
      WgmmaWait<1>();
      break;
    case 2:
      WgmmaWait<2>();
      break;
    default:
      WgmmaWait<3>();
      break;
  }
}

struct StageCursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Consumer: kBlocks k-blocks, added to `sum`, as straight-line code that ends with nothing in
/// flight (ptxas serialises products that run over a loop's back edge). At most kDepth products run
/// or wait for their promotion. The first block is number `in_stage` of its stage, and with kTurns
/// all are, each of a stage of its own.
template <class C, int kBlocks>
__device__ __forceinline__ void Fp8SwapBlocks(float (&sum)[C::kRegs],
                                              const Fp8SwapShared<C>& shared, StageCursor& at,
                                              const float* scales, int stages, int warpgroup,
                                              int in_stage, int lane) {
  const int row_group = C::kTurns > 1 ? 0 : warpgroup % C::kRowGroups,
            token_group = C::kTurns > 1 ? 0 : warpgroup / C::kRowGroups;
  scales += token_group * C::kLoopTokens;
  constexpr int kProducts = kBlocks * C::kParts;
  constexpr int kPartGroups = C::kProductTokens / 8;
  constexpr int kAhead = C::kDepth > 1 ? C::kDepth - 1 : 1;
  using Product = Wgmma<E4m3, C::kProductTokens>;
  float product[C::kDepth][C::kProductTokens / 2];
  float2 token_scale[C::kReadFirst ? kBlocks * C::kLoopGroups : C::kReadAhead ? kPartGroups : 2];
  int stage[kBlocks];
  uint64_t weights = 0, activations = 0;
  static_assert(kBlocks == 1 || kBlocks % C::kStageBlocks == 0);
  constexpr bool kInTurn = C::kTurns > 1;
  const auto place = [&](int block) {
    return kBlocks == 1 || kInTurn ? in_stage : block % C::kStageBlocks;
  };
  const auto issue = [&](int i) {
    if (i % C::kParts == 0) {
      const int block = place(i / C::kParts);
      stage[i / C::kParts] = at.stage;
      if (kInTurn || block == 0) BarrierWait(&shared.full[at.stage], at.parity);
      weights = WgmmaDescriptor128(SharedAddress(shared.weights(at.stage)) +
                                   (block * C::kRows + row_group * 64) * 128);
      activations = WgmmaDescriptor128(SharedAddress(shared.activations(at.stage)) +
                                       (block * C::kTokens + token_group * C::kLoopTokens) * 128);
      if (kInTurn || block == C::kStageBlocks - 1) at.Advance(stages);
    }
    const uint64_t part =
        activations + WgmmaDescriptorStep(i % C::kParts * C::kProductTokens * 128);
    WgmmaFence();
    Product::template Ss<false>(product[i % C::kDepth], weights, part);
#pragma unroll
    for (int slice = 1; slice < 4; ++slice) {
      const uint64_t step = WgmmaDescriptorStep(slice * kWgmmaKBytes);
      Product::template Ss<true>(product[i % C::kDepth], weights + step, part + step);
    }
    WgmmaCommit();
  };
  // Read one product ahead: under full-rate products shared memory answers late.
  const auto scales_of = [&](int i) {
    return scales + i / C::kParts * C::kTurns * C::kScaleStride +
           i % C::kParts * C::kProductTokens + 4 * (lane & 3);
  };
  const auto read_two = [&](const float* from, float2* to) {
    const float4 two = *reinterpret_cast<const float4*>(from);
    to[0] = make_float2(two.x, two.y), to[1] = make_float2(two.z, two.w);
  };
  const auto read_ahead = [&](int i) {
    if constexpr (kPartGroups == 1) {
      token_scale[0] = *reinterpret_cast<const float2*>(scales_of(i));
    } else {
#pragma unroll
      for (int j = 0; j < kPartGroups; j += 2) read_two(scales_of(i) + 8 * j, &token_scale[j]);
    }
  };
  if constexpr (C::kReadFirst) {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      if constexpr (kPartGroups == 1) {
        token_scale[i] = *reinterpret_cast<const float2*>(scales_of(i));
      } else {
#pragma unroll
        for (int j = 0; j < kPartGroups; j += 2)
          read_two(scales_of(i) + 8 * j, &token_scale[i * kPartGroups + j]);
      }
    }
    // Here, not where the compiler would like them.
#pragma unroll
    for (float2& x : token_scale) asm volatile("" : "+f"(x.x), "+f"(x.y)::"memory");
  }
#pragma unroll
  for (int i = 0; i < kAhead && i < kProducts; ++i) issue(i);
  if constexpr (C::kReadAhead) read_ahead(0);
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    if (C::kDepth > 1 && i + C::kDepth - 1 < kProducts) issue(i + C::kDepth - 1);
    WaitForAllBut((C::kDepth < kProducts - i ? C::kDepth : kProducts - i) - 1);
    float(&done)[C::kProductTokens / 2] = product[i % C::kDepth];
    FenceRegisters(done);
    if (i % C::kParts == C::kParts - 1 &&
        (kInTurn || place(i / C::kParts) == C::kStageBlocks - 1) && lane == 0)
      BarrierArrive(&shared.empty[stage[i / C::kParts]]);
#pragma unroll
    for (int j = 0; j < kPartGroups; ++j) {
      float* const to = sum + 4 * (i % C::kParts * kPartGroups + j);
      if (!C::kReadFirst && !C::kReadAhead && j % 2 == 0)
        read_two(scales_of(i) + 8 * j, token_scale);
      const float2 x = token_scale[C::kReadFirst ? i * kPartGroups + j : C::kReadAhead ? j : j % 2];
      to[0] += x.x * done[4 * j];
      to[1] += x.y * done[4 * j + 1];
      to[2] += x.x * done[4 * j + 2];
      to[3] += x.y * done[4 * j + 3];
    }
    if (i + 1 < kProducts) {
      if (C::kDepth == 1) issue(i + 1);
      if constexpr (C::kReadAhead) read_ahead(i + 1);
    }
  }
}

/// The other producers: multiply the scales of tokens and weights, four k-blocks at a time.
template <class C>
struct Fp8SwapScales {
  using L = Fp8SwapLayout;
  static constexpr int kMyGroups = C::kTokens / C::kScaleWarps / 8;
  /// Chunks on their way to registers: with one, its latency (some 1400 clocks when memory is busy)
  /// sets the pace of kernels that need a k-block less than 350 clocks.
  static constexpr int kSets = kMyGroups <= 8 ? 3 : C::kReallocate ? 1 : 2;
  static_assert(L::kScaleBlocks == 4);
  const Fp8SwapParams& p;
  const float* from_a;
  const float* from_b;
  int count, tokens_left, my_block, my_token, my_group;
  float token_scale[kSets][kMyGroups], weight_scale[kSets];

  // Lane l serves block l % 4 of a chunk and token l / 4 of every group of 8.
  __device__ __forceinline__ Fp8SwapScales(const Fp8SwapParams& p, int first, int count, int token0,
                                           int row0, int part, int lane)
      : p(p), count(count), my_block(lane % 4), my_token(lane / 4), my_group(part * kMyGroups) {
    token0 += my_group * 8;
    tokens_left = p.m - token0 - my_token;
    from_a = p.scale_a + int64_t(token0 + my_token) * p.scale_a_row +
             int64_t(first + my_block) * p.scale_a_block;
    from_b = p.scale_b + int64_t(row0 / 128) * p.scale_b_column +
             int64_t(first + my_block) * p.scale_b_block;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      weight_scale[set] = 0.0f;
#pragma unroll
      for (int j = 0; j < kMyGroups; ++j) token_scale[set][j] = 0.0f;
    }
  }

  __device__ __forceinline__ void Fetch(int chunk, float (&tokens)[kMyGroups], float& weight) {
    if (chunk * 4 + my_block >= count) return;
    weight = __ldg(from_b + int64_t(chunk * 4) * p.scale_b_block);
#pragma unroll
    for (int j = 0; j < kMyGroups; ++j)
      if (8 * j < tokens_left)
        tokens[j] =
            __ldg(from_a + int64_t(8 * j) * p.scale_a_row + int64_t(chunk * 4) * p.scale_a_block);
  }

  /// Asks for the first chunks.
  __device__ __forceinline__ void Begin() {
#pragma unroll
    for (int set = 0; set < kSets; ++set) Fetch(set, token_scale[set], weight_scale[set]);
  }

  /// After Begin.
  __device__ __forceinline__ void Run(const Fp8SwapShared<C>& shared) {
#pragma unroll 1
    for (int first = 0; first * 4 < count; first += kSets) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        const int chunk = first + set;
        if (chunk * 4 >= count) break;
        const int buffer = chunk % L::kScaleBuffers;
        if (chunk >= L::kScaleBuffers)
          BarrierWait(&shared.scales_empty[buffer], (chunk / L::kScaleBuffers & 1) ^ 1);
        float* const to = shared.scale(buffer, my_block);
#pragma unroll
        for (int j = 0; j < kMyGroups; ++j)
          to[Fp8SwapScaleIndex(my_group + j, my_token)] = token_scale[set][j] * weight_scale[set];
        BarrierArrive(&shared.scales_full[buffer]);
        Fetch(chunk + kSets, token_scale[set], weight_scale[set]);
      }
    }
  }
};

/// Rounds one warp's sums of a group of 8 tokens (row l/4, tokens 2(l%4) and +1, then row l/4 + 8)
/// and puts them into its warpgroup's BF16 tile: a row of 64 columns (128 bytes) a token, the
/// 16-byte chunks of a row XORed with the token, so that stmatrix and the copy out meet no bank
/// twice.
__device__ __forceinline__ void Fp8SwapStage(uint32_t tile, float4 v, float alpha, int group,
                                             int warp, int lane) {
  const uint32_t token = group * 8 + (lane & 7), chunk = (warp & 3) * 2 + ((lane >> 3) & 1);
  StoreMatrix2Transposed(tile + SwizzledOffset(SwizzleMode::k128Bytes, token, chunk * 16),
                         PackBf16(v.x * alpha, v.y * alpha), PackBf16(v.z * alpha, v.w * alpha));
}

/// A warpgroup copies its groups rank, rank + splits, ... of the BF16 tile to D.
__device__ __forceinline__ void Fp8SwapCopyOut(const Fp8SwapParams& p, const uint8_t* tile,
                                               int groups, int rank, int splits, int token0,
                                               int column0, int thread) {
  // 8 tokens x 8 chunks a group: the 128 threads take two groups at a time.
  const int chunk = thread & 7, token_in_group = (thread >> 3) & 7;
  const int column = column0 + 8 * chunk;
  const bool wide =
      ((reinterpret_cast<uint64_t>(p.d) | (p.ldd * 2)) & 15) == 0 && column + 8 <= p.n;
  const int first = rank + (thread >> 6) * splits;
  const uint8_t* from =
      tile + SwizzledOffset(SwizzleMode::k128Bytes, first * 8 + token_in_group, chunk * 16);
  int token = token0 + first * 8 + token_in_group;
  uint16_t* to = static_cast<uint16_t*>(p.d) + token * p.ldd + column;
  const int64_t step = 2 * splits * 8 * p.ldd;
  // Few instructions: they run once, and every 16 of them come from memory.
#pragma unroll 1
  for (int group = first; group < groups && token < p.m; group += 2 * splits) {
    const uint4 data = *reinterpret_cast<const uint4*>(from);
    if (wide) {
      *reinterpret_cast<uint4*>(to) = data;
    } else {
      const uint16_t* const narrow = reinterpret_cast<const uint16_t*>(from);
#pragma unroll 1
      for (int i = 0; i < 8 && column + i < p.n; ++i) to[i] = narrow[i];
    }
    from += 2 * splits * 1024, to += step, token += 2 * splits * 8;
  }
}

/// A warp's sums as F32 to D, those of the groups of 8 tokens in `own`: eight lanes write 32 bytes
/// side by side. `column` is that of the warp's first row of weights.
template <class C>
__device__ __forceinline__ void Fp8SwapStoreF32(const Fp8SwapParams& p,
                                                const float (&sum)[C::kOwnTokens / 2], uint32_t own,
                                                int token0, int column, int lane) {
  column += lane / 4;
#pragma unroll
  for (int j = 0; j < C::kGroups; ++j) {
    if ((own >> j & 1) == 0) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // (row, token), (row, token + 1), then 8 rows on
      const int token = token0 + j * 8 + 2 * (lane & 3) + i % 2, at = column + i / 2 * 8;
      if (token < p.m && at < p.n)
        static_cast<float*>(p.d)[token * p.ldd + at] = sum[4 * j + i] * p.alpha;
    }
  }
}

/// Four sums as they travel, and their addition where they arrive: in pairs that changed places. A
/// vector's registers are aligned as a product's are, and promotion would read each product and its
/// sum from one register bank.
__device__ __forceinline__ float4 PackSums(const float* sum) {
  return make_float4(sum[1], sum[0], sum[3], sum[2]);
}
__device__ __forceinline__ void AddSums(float* sum, float4 packed) {
  sum[1] += packed.x, sum[0] += packed.y, sum[3] += packed.z, sum[2] += packed.w;
}

/// Adds what two warpgroups summed in turn: warpgroup t gets the total of the t-th half of the
/// tokens.
template <class C>
__device__ __forceinline__ void Fp8SwapSumTurns(const Fp8SwapShared<C>& shared,
                                                const float (&sum)[C::kRegs],
                                                float (&total)[C::kOwnTokens / 2], int turn) {
  constexpr int kHalf = C::kOwnTokens / 2, kFours = kHalf / 4;
  NamedSync(1, C::kConsumers);  // all have left the stages
  float4* const to = reinterpret_cast<float4*>(shared.stages) + threadIdx.x;
  const float4* const from = reinterpret_cast<const float4*>(shared.stages) + (threadIdx.x ^ 128);
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    if (t != turn) continue;
#pragma unroll
    for (int j = 0; j < kFours; ++j) to[j * 256] = PackSums(&sum[(1 - t) * kHalf + 4 * j]);
#pragma unroll
    for (int i = 0; i < kHalf; ++i) total[i] = sum[t * kHalf + i];
  }
  NamedSync(1, C::kConsumers);
#pragma unroll
  for (int j = 0; j < kFours; ++j) AddSums(&total[4 * j], from[j * 256]);
}

/// Adds the sums over the cluster, rounds and stores them.
template <class C>
__device__ __forceinline__ void Fp8SwapFinish(const Fp8SwapParams& p,
                                              const Fp8SwapShared<C>& shared,
                                              float (&sum)[C::kOwnTokens / 2], int rank, int splits,
                                              int token0, int row0, int warp, int lane) {
  const int warpgroup = warp / 4, token_group = warpgroup / C::kRowGroups;
  // A warpgroup's groups of 8 tokens go round-robin to the CTAs of the cluster for summing.
  const int own_token0 = token0 + token_group * C::kOwnTokens;
  const int groups = min(C::kGroups, max(0, (p.m - own_token0 + 7) / 8));
  // Bit j: this CTA sums and stores group j.
  uint32_t own = groups == 32 ? ~0u : (1u << groups) - 1;
  if (splits > 1) {
    // Group j goes to CTA j % splits, from CTA r into slot (r, the owner left out; j / splits).
    const int slots = (C::kGroups + splits - 1) / splits;
    const uint32_t mine = SharedAddress(shared.exchange) + threadIdx.x * 16;
    const uint32_t full = SharedAddress(shared.exchange_full);
    int owner = 0, slot = 0;
#pragma unroll
    for (int j = 0; j < C::kGroups; ++j) {
      if (j < groups && owner != rank) {
        own &= ~(1u << j);
        const int from = rank < owner ? rank : rank - 1;
        const uint32_t to = mine + (from * slots + slot) * (C::kConsumers * 16);
        StoreAsync(MapToRank(to, owner), PackSums(&sum[4 * j]), MapToRank(full, owner));
      }
      if (++owner == splits) owner = 0, ++slot;
    }
    // The first token group has the most groups: without one of those this CTA sums nothing.
    if (rank >= (p.m - token0 + 7) / 8) return;
    if (threadIdx.x % 128 == 0)
      BarrierArriveExpect(shared.exchange_full, (splits - 1) * __popc(own) * 128 * 16);
    BarrierWaitCluster(shared.exchange_full, 0);
    // The order of the sum depends on the ranks alone.
#pragma unroll 1
    for (int from = 0; from < splits - 1; ++from) {
      const uint8_t* at = shared.exchange + (from * slots * C::kConsumers + threadIdx.x) * 16;
#pragma unroll
      for (int j = 0; j < C::kGroups; ++j) {
        if ((own >> j & 1) == 0) continue;
        AddSums(&sum[4 * j], *reinterpret_cast<const float4*>(at));
        at += C::kConsumers * 16;
      }
    }
  }
  if constexpr (C::kFloat32) {
    Fp8SwapStoreF32<C>(p, sum, own, own_token0,
                       row0 + warpgroup % C::kRowGroups * 64 + (warp & 3) * 16, lane);
    return;
  }
  // All loads have been consumed once every consumer is here: the ring becomes the output tile.
  NamedSync(1, C::kConsumers);
  uint8_t* const tile = shared.stages + warpgroup * C::kOwnTokens * 128;
  const auto stage_group = [&](int j) {
    Fp8SwapStage(SharedAddress(tile),
                 make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]), p.alpha,
                 j, warp, lane);
  };
  if (splits == 1) {
    // Without branches; groups past the last token are not copied out.
#pragma unroll
    for (int j = 0; j < C::kGroups; ++j) stage_group(j);
  } else {
#pragma unroll
    for (int j = 0; j < C::kGroups; ++j)
      if (own >> j & 1) stage_group(j);
  }
  NamedSync(2 + warpgroup, 128);
  Fp8SwapCopyOut(p, tile, groups, rank, splits, own_token0, row0 + warpgroup % C::kRowGroups * 64,
                 threadIdx.x % 128);
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinCtas)
    Fp8SwapGemm(const __grid_constant__ Fp8SwapParams p) {
  extern __shared__ __align__(1024) uint8_t shared_base[];
  const int stages = p.stages;
  const Fp8SwapShared<C> shared(shared_base, stages);
  const int warp = WarpUniform(threadIdx.x / 32), lane = threadIdx.x % 32;
  const int splits = static_cast<int>(cuda::ptx::get_sreg_cluster_nctarank());
  const int rank = static_cast<int>(ClusterRank());
  const int token0 = blockIdx.y * C::kTokens;
  const int row0 = blockIdx.z * C::kRows;
  // In k-blocks; the last load of all may bring fewer than its stage holds, and zeros.
  const int loads = p.loads_each + (rank < p.loads_rest ? 1 : 0);
  const int first = (rank * p.loads_each + min(rank, p.loads_rest)) * C::kStageBlocks;
  const int count = min(loads * C::kStageBlocks, p.k_blocks - first);
  constexpr int kTmaWarp = C::kConsumers / 32, kScaleWarp = kTmaWarp + 1;
  constexpr uint32_t kStageTx = C::kStageBytes;

  // Under programmatic dependent launch the weights come before the wait for the kernel before.
  // Otherwise what all CTAs share comes first: DRAM serves the weights of all stages in any order,
  // and whatever is asked for later queues behind them (3 us measured).
  const bool early_weights = p.early_weights != 0;
  const auto load = [&](uint8_t* to, const CUtensorMap* map, uint64_t* full, int i, int row,
                        int rows, auto... policy) {
    const int block = first + i * C::kStageBlocks;
    if (C::kStageBlocks > 1 && p.sliced) {
      TmaLoad3(to, map, full, 0, row, block, policy...);
    } else {
#pragma unroll
      for (int j = 0; j < C::kStageBlocks; ++j)
        TmaLoad(to + j * rows * 128, map, full, (block + j) * 128, row, policy...);
    }
  };
  const auto load_activations = [&](int stage, int i) {
    load(shared.activations(stage), &p.activations, &shared.full[stage], i, token0, C::kTokens);
  };
  // Weights are read once (by neighbours at a time, where tokens take several tiles) and must not
  // push anything else out of L2.
  const auto load_weights = [&](int stage, int i) {
    load(shared.weights(stage), &p.weights, &shared.full[stage], i, row0, C::kRows, EvictFirst());
  };
  const auto load_stage = [&](int i) {
    BarrierArriveExpect(&shared.full[i], kStageTx);
    if (!early_weights) load_activations(i, i);
    load_weights(i, i);
  };
  // The first load leaves as soon as its barrier is there; other warps prepare the rest meanwhile.
  // An `else` would move its code behind theirs, and code comes from memory; a branch on the lane
  // instead of elect.sync would wrap each TMA instruction into a loop over lanes.
  const int first_loads = min(stages, loads);
  if (warp == kTmaWarp && ElectOne()) {
    BarrierInit(&shared.full[0], FullArrivals());
    BarrierInitFence();
    load_stage(0);
  }
  if (warp == kScaleWarp && ElectOne()) {  // beside the first load, not ahead of it
    PrefetchTensorMap(&p.weights);
    PrefetchTensorMap(&p.activations);
  }
  if (warp < 2 && lane == 0) {
    if (warp == 0) {
#pragma unroll
      for (int i = 0; i < kFp8SwapMaxStages; ++i)
        BarrierInit(&shared.empty[i], EmptyArrivals(C::kConsumers / 32, 1));
    } else {
#pragma unroll
      for (int i = 1; i < kFp8SwapMaxStages; ++i) BarrierInit(&shared.full[i], FullArrivals());
#pragma unroll
      for (int i = 0; i < Fp8SwapLayout::kScaleBuffers; ++i) {
        BarrierInit(&shared.scales_full[i], 32 * C::kScaleWarps);
        BarrierInit(&shared.scales_empty[i], C::kConsumers / 32);
      }
      BarrierInit(shared.exchange_full, C::kWarpgroups);
    }
    BarrierInitFence();
  }
  const bool scale_warp = warp >= kScaleWarp && warp < kScaleWarp + C::kScaleWarps;
  Fp8SwapScales<C> scales(p, first, count, token0, row0, warp - kScaleWarp, lane);
  if (scale_warp && !early_weights) scales.Begin();
  __syncthreads();
  // Says that this CTA's barriers are ready for the others' sums; waited for before those are sent.
  if (splits > 1) ClusterArriveRelaxed();
  if (warp >= kTmaWarp) {
    if constexpr (C::kReallocate) RegistersDown<C::kProducerRegisters>();
    if (scale_warp) {
      GridDependencyWait();
      // Not before the wait: the next kernel loads its weights early, and only this one, not those
      // before it, is known to leave them alone.
      if constexpr (!C::kLateTrigger) GridDependencyLaunch();
      if (early_weights) {
        scales.Begin();
        if (warp == kScaleWarp && ElectOne()) {
#pragma unroll 1
          for (int i = 0; i < first_loads; ++i) load_activations(i, i);
        }
      }
      __syncwarp();
      scales.Run(shared);
    } else if (warp == kTmaWarp && ElectOne()) {
#pragma unroll 1
      for (int i = 1; i < first_loads; ++i) load_stage(i);
      GridDependencyWait();
      StageCursor at{0, 1};
#pragma unroll 1
      for (int i = stages; i < loads; ++i) {
        BarrierWait(&shared.empty[at.stage], at.parity ^ 1);
        BarrierArriveExpect(&shared.full[at.stage], kStageTx);
        load_activations(at.stage, i);
        load_weights(at.stage, i);
        at.Advance(stages);
      }
      if constexpr (C::kLateTrigger) GridDependencyLaunch();
    }
    __syncwarp();
    if (splits > 1) ClusterWait();
    return;
  }
  if constexpr (C::kReallocate) RegistersUp<C::kConsumerRegisters>();

  float sum[C::kRegs];
#pragma unroll
  for (int i = 0; i < C::kRegs; ++i) sum[i] = 0.0f;
  const int warpgroup = warp / 4;
  {
    StageCursor at;
    using L = Fp8SwapLayout;
#pragma unroll 1
    for (int chunk = 0; chunk * 4 < count; ++chunk) {
      const int buffer = chunk % L::kScaleBuffers;
      BarrierWait(&shared.scales_full[buffer], chunk / L::kScaleBuffers & 1);
      const int left = min(4, count - chunk * 4);
      int block = 0;
      if constexpr (C::kTurns > 1) {
        if (left >= 3 + warpgroup) {
          Fp8SwapBlocks<C, 2>(sum, shared, at, shared.scale(buffer, warpgroup), stages, warpgroup,
                              warpgroup, lane);
        } else if (left > warpgroup) {
          Fp8SwapBlocks<C, 1>(sum, shared, at, shared.scale(buffer, warpgroup), stages, warpgroup,
                              warpgroup, lane);
        }
        block = left;
      } else if constexpr (C::kUnroll > 1) {
#pragma unroll 1
        for (; block + C::kUnroll <= left; block += C::kUnroll)
          Fp8SwapBlocks<C, C::kUnroll>(sum, shared, at, shared.scale(buffer, block), stages,
                                       warpgroup, 0, lane);
      }
      {
#pragma unroll 1
        for (; block < left; ++block)
          Fp8SwapBlocks<C, 1>(sum, shared, at, shared.scale(buffer, block), stages, warpgroup,
                              block % C::kStageBlocks, lane);
      }
      if (lane == 0) BarrierArrive(&shared.scales_empty[buffer]);
    }
  }
  __syncwarp();
  if (splits > 1) ClusterWait();

  if constexpr (C::kTurns == 1) {
    Fp8SwapFinish<C>(p, shared, sum, rank, splits, token0, row0, warp, lane);
  } else {
    float total[C::kOwnTokens / 2];
    Fp8SwapSumTurns<C>(shared, sum, total, warpgroup);
    Fp8SwapFinish<C>(p, shared, total, rank, splits, token0, row0, warp, lane);
  }
}

/// `registers` as ptxas reports them; `residencies` as in Fp8SwapKernel.
template <class C>
Fp8SwapKernel MakeFp8Swap(const char* id, int registers, int residencies) {
  return {id,
          reinterpret_cast<const void*>(&Fp8SwapGemm<C>),
          C::kTokens,
          C::kRowGroups,
          C::kTokenGroups * C::kTurns,
          C::kStageBlocks,
          C::kMinStages,
          C::kThreads,
          registers,
          residencies,
          C::kFloat32 ? 4 : 2};
}

}  // namespace culet::sm90
