// Block-scaled FP8 products with few tokens: D^T = B A^T on a 64G x N tile, K split over a cluster.
//
// Bound by the weights' bytes, so everything here serves the stream: loads of the weights start
// before anything else (before griddepcontrol.wait under programmatic dependent launch), a CTA's
// shared memory is one deep ring, and CTAs are small enough that several share a multiprocessor and
// that the next kernel's CTAs fit beside this one's.
//
// Warps: 4G consumers; one that loads the weights; one that loads the activations and multiplies
// both operands' scales. A k-block is 128 deep and is promoted to FP32 registers with its scales
// (the tensor core keeps 14 bits of an FP8 sum). The partial sums of a cluster's CTAs meet in
// shared memory through st.async; each sum is taken in rank order, so results repeat bit for bit.
#pragma once

#include "kernels/sm90/small_m.h"
#include "sm90/descriptor.h"
#include "sm90/epilogue.cuh"
#include "sm90/fragment.cuh"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::sm90 {

/// kRowGroups x kTokenGroups consumer warpgroups, each with 64 rows and its share of the kTokens.
/// One wgmma covers kProductTokens; kDepth of them run in the tensor core at a time.
template <int kTokens_, int kRowGroups_, int kTokenGroups_, int kProductTokens_, int kDepth_,
          int kMinCtas_>
struct SmallMConfig {
  static constexpr int kTokens = kTokens_;
  static constexpr int kRowGroups = kRowGroups_;
  static constexpr int kTokenGroups = kTokenGroups_;
  static constexpr int kProductTokens = kProductTokens_;
  static constexpr int kDepth = kDepth_;
  static constexpr int kMinCtas = kMinCtas_;
  static constexpr int kWarpgroups = kRowGroups * kTokenGroups;
  static constexpr int kOwnTokens = kTokens / kTokenGroups;   ///< of a warpgroup
  static constexpr int kParts = kOwnTokens / kProductTokens;  ///< its products a k-block
  static constexpr int kConsumers = 128 * kWarpgroups;
  static constexpr int kThreads = kConsumers + 64;
  static constexpr int kRows = 64 * kRowGroups;
  static constexpr int kRegs = kOwnTokens / 2;    ///< sums a thread
  static constexpr int kGroups = kOwnTokens / 8;  ///< of 8 tokens: 4 sums a thread
  static constexpr int kStageBytes = (kRows + kTokens) * 128;
  static constexpr int kScaleStride = SmallMLayout::ScaleBytes(kTokens) / 4;
  /// With many tokens the next kernel starts once all loads are issued: its weights would queue
  /// ahead of this one's activations. With few it starts as early as it may.
  static constexpr bool kLateTrigger = kTokens >= 64;
  static constexpr bool kFloat32 = false;  ///< D is BF16
  static_assert(kRows <= 128, "a CTA's rows share one weight scale");
  static_assert(kTokenGroups == 1 || kOwnTokens % 16 == 0, "scales of two groups lie together");
};

/// The same with D in F32.
template <class C>
struct SmallMF32 : C {
  static constexpr bool kFloat32 = true;
};

/// Where the scale of token 8 * group + t lies: lane l of a consumer needs tokens 2(l%4) and +1 of
/// every group, and finds those of two groups side by side, for one 16-byte read.
__device__ __forceinline__ int SmallMScaleIndex(int group, int t) {
  return (group / 2) * 16 + (t / 2) * 4 + (group & 1) * 2 + (t & 1);
}

template <class C>
struct SmallMShared {
  uint8_t* stages;
  float* scales;
  uint64_t* full;
  uint64_t* empty;
  uint64_t* scales_full;
  uint64_t* scales_empty;
  uint64_t* exchange_full;
  uint8_t* exchange;

  __device__ __forceinline__ SmallMShared(uint8_t* base, int count) : stages(base) {
    using L = SmallMLayout;
    uint8_t* const after = base + count * C::kStageBytes;
    scales = reinterpret_cast<float*>(after);
    full = reinterpret_cast<uint64_t*>(after +
                                       L::kScaleBuffers * L::kScaleBlocks * C::kScaleStride * 4);
    empty = full + kSmallMMaxStages;
    scales_full = empty + kSmallMMaxStages;
    scales_empty = scales_full + L::kScaleBuffers;
    exchange_full = scales_empty + L::kScaleBuffers;
    exchange = reinterpret_cast<uint8_t*>(exchange_full + 2);
  }
  __device__ __forceinline__ uint8_t* weights(int s) const { return stages + s * C::kStageBytes; }
  __device__ __forceinline__ uint8_t* activations(int s) const {
    return weights(s) + C::kRows * 128;
  }
  /// Scales of block `block` of a chunk.
  __device__ __forceinline__ float* scale(int buffer, int block) const {
    return scales + (buffer * SmallMLayout::kScaleBlocks + block) * C::kScaleStride;
  }
};

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
/// flight (ptxas serialises products that run over a loop's back edge). At depth 2 one product runs
/// while the one before is promoted.
template <class C, int kBlocks>
__device__ __forceinline__ void SmallMBlocks(float (&sum)[C::kRegs], const SmallMShared<C>& shared,
                                             StageCursor& at, const float* scales, int stages,
                                             int warpgroup, int lane) {
  const int row_group = warpgroup % C::kRowGroups, token_group = warpgroup / C::kRowGroups;
  scales += token_group * C::kOwnTokens;
  constexpr int kProducts = kBlocks * C::kParts;
  constexpr int kPartGroups = C::kProductTokens / 8;
  using Product = WgmmaE4m3<C::kProductTokens>;
  float product[C::kDepth][C::kProductTokens / 2];
  float2 token_scale[kPartGroups];
  int stage[kBlocks];
  uint64_t weights = 0, activations = 0;
  const auto issue = [&](int i) {
    if (i % C::kParts == 0) {
      stage[i / C::kParts] = at.stage;
      BarrierWait(&shared.full[at.stage], at.parity);
      weights = WgmmaDescriptor128(SharedAddress(shared.weights(at.stage)) + row_group * 64 * 128);
      activations = WgmmaDescriptor128(SharedAddress(shared.activations(at.stage)) +
                                       token_group * C::kOwnTokens * 128);
      at.Advance(stages);
    }
    const uint64_t part =
        activations + WgmmaDescriptorStep(i % C::kParts * C::kProductTokens * 128);
    WgmmaFence();
    Product::template Ss<false>(product[i % C::kDepth], weights, part);
#pragma unroll
    for (int slice = 1; slice < 4; ++slice) {
      const uint64_t step = WgmmaDescriptorStep(slice * kWgmmaFp8KBytes);
      Product::template Ss<true>(product[i % C::kDepth], weights + step, part + step);
    }
    WgmmaCommit();
  };
  // Read one product ahead: under full-rate products shared memory answers late.
  const auto read_scales = [&](int i) {
    const float* const from = scales + i / C::kParts * C::kScaleStride +
                              i % C::kParts * C::kProductTokens + 4 * (lane & 3);
    if constexpr (kPartGroups == 1) {
      token_scale[0] = *reinterpret_cast<const float2*>(from);
    } else {
#pragma unroll
      for (int j = 0; j < kPartGroups; j += 2) {
        const float4 two = *reinterpret_cast<const float4*>(from + 8 * j);
        token_scale[j] = make_float2(two.x, two.y);
        token_scale[j + 1] = make_float2(two.z, two.w);
      }
    }
  };
  issue(0);
  read_scales(0);
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    if (C::kDepth > 1 && i + 1 < kProducts) {
      issue(i + 1);
      WgmmaWait<1>();
    } else {
      WgmmaWait<0>();
    }
    float(&done)[C::kProductTokens / 2] = product[i % C::kDepth];
    FenceRegisters(done);
    if (i % C::kParts == C::kParts - 1 && lane == 0)
      BarrierArrive(&shared.empty[stage[i / C::kParts]]);
#pragma unroll
    for (int j = 0; j < kPartGroups; ++j) {
      float* const to = sum + 4 * (i % C::kParts * kPartGroups + j);
      to[0] += token_scale[j].x * done[4 * j];
      to[1] += token_scale[j].y * done[4 * j + 1];
      to[2] += token_scale[j].x * done[4 * j + 2];
      to[3] += token_scale[j].y * done[4 * j + 3];
    }
    if (i + 1 < kProducts) {
      if (C::kDepth == 1) issue(i + 1);
      read_scales(i + 1);
    }
  }
}

/// The second producer: multiplies the scales of tokens and weights, four k-blocks at a time.
template <class C>
struct SmallMScales {
  using L = SmallMLayout;
  static constexpr int kTileGroups = C::kTokens / 8;
  static_assert(L::kScaleBlocks == 4);
  const SmallMParams& p;
  const float* from_a;
  const float* from_b;
  int count, tokens_left, my_block, my_token;
  float token_scale[kTileGroups], weight_scale = 0.0f;

  // Lane l serves block l % 4 of a chunk and token l / 4 of every group of 8.
  __device__ __forceinline__ SmallMScales(const SmallMParams& p, int first, int count, int token0,
                                          int row0, int lane)
      : p(p), count(count), my_block(lane % 4), my_token(lane / 4) {
    tokens_left = p.m - token0 - my_token;
    from_a = p.scale_a + int64_t(token0 + my_token) * p.scale_a_row +
             int64_t(first + my_block) * p.scale_a_block;
    from_b = p.scale_b + int64_t(row0 / 128) * p.scale_b_column +
             int64_t(first + my_block) * p.scale_b_block;
#pragma unroll
    for (int j = 0; j < kTileGroups; ++j) token_scale[j] = 0.0f;
  }

  __device__ __forceinline__ void Fetch(int chunk) {
    if (chunk * 4 + my_block >= count) return;
    weight_scale = __ldg(from_b + int64_t(chunk * 4) * p.scale_b_block);
#pragma unroll
    for (int j = 0; j < kTileGroups; ++j)
      if (8 * j < tokens_left)
        token_scale[j] =
            __ldg(from_a + int64_t(8 * j) * p.scale_a_row + int64_t(chunk * 4) * p.scale_a_block);
  }

  /// Chunk 0 has been fetched.
  __device__ __forceinline__ void Run(const SmallMShared<C>& shared) {
#pragma unroll 1
    for (int chunk = 0; chunk * 4 < count; ++chunk) {
      const int buffer = chunk % L::kScaleBuffers;
      if (chunk >= L::kScaleBuffers)
        BarrierWait(&shared.scales_empty[buffer], (chunk / L::kScaleBuffers & 1) ^ 1);
      float* const to = shared.scale(buffer, my_block);
#pragma unroll
      for (int j = 0; j < kTileGroups; ++j)
        to[SmallMScaleIndex(j, my_token)] = token_scale[j] * weight_scale;
      BarrierArrive(&shared.scales_full[buffer]);
      Fetch(chunk + 1);
    }
  }
};

/// Rounds one warp's sums of a group of 8 tokens (row l/4, tokens 2(l%4) and +1, then row l/4 + 8)
/// and puts them into its warpgroup's BF16 tile: a row of 64 columns (128 bytes) a token, the
/// 16-byte chunks of a row XORed with the token, so that stmatrix and the copy out meet no bank
/// twice.
__device__ __forceinline__ void SmallMStage(uint32_t tile, float4 v, float alpha, int group,
                                            int warp, int lane) {
  const uint32_t token = group * 8 + (lane & 7), chunk = (warp & 3) * 2 + ((lane >> 3) & 1);
  StoreMatrix2Transposed(tile + SwizzledOffset(SwizzleMode::k128Bytes, token, chunk * 16),
                         PackBf16(v.x * alpha, v.y * alpha), PackBf16(v.z * alpha, v.w * alpha));
}

/// A warpgroup copies its groups rank, rank + splits, ... of the BF16 tile to D.
__device__ __forceinline__ void SmallMCopyOut(const SmallMParams& p, const uint8_t* tile,
                                              int groups, int rank, int splits, int token0,
                                              int column0, int thread) {
  // 8 tokens x 8 chunks a group: the 128 threads take two groups at a time.
  const int chunk = thread & 7, token_in_group = (thread >> 3) & 7;
  const int column = column0 + 8 * chunk;
  const bool wide =
      ((reinterpret_cast<uint64_t>(p.d) | (p.ldd * 2)) & 15) == 0 && column + 8 <= p.n;
#pragma unroll 4
  for (int group = rank + (thread >> 6) * splits; group < groups; group += 2 * splits) {
    const int in_tile = group * 8 + token_in_group, token = token0 + in_tile;
    if (token >= p.m) continue;
    const uint4 data = *reinterpret_cast<const uint4*>(
        tile + SwizzledOffset(SwizzleMode::k128Bytes, in_tile, chunk * 16));
    uint16_t* const to = static_cast<uint16_t*>(p.d) + token * p.ldd + column;
    if (wide) {
      *reinterpret_cast<uint4*>(to) = data;
    } else {
      uint32_t words[4] = {data.x, data.y, data.z, data.w};
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (column + i < p.n) to[i] = static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2)));
    }
  }
}

/// A warp's sums as F32 to D, those of the groups of 8 tokens in `own`: eight lanes write 32 bytes
/// side by side. `column` is that of the warp's first row of weights.
template <class C>
__device__ __forceinline__ void SmallMStoreF32(const SmallMParams& p, const float (&sum)[C::kRegs],
                                               uint32_t own, int token0, int column, int lane) {
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

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinCtas)
    SmallMGemm(const __grid_constant__ SmallMParams p) {
  extern __shared__ __align__(1024) uint8_t shared_base[];
  const int stages = p.stages;
  const SmallMShared<C> shared(shared_base, stages);
  const int warp = WarpUniform(threadIdx.x / 32), lane = threadIdx.x % 32;
  const int splits = static_cast<int>(cuda::ptx::get_sreg_cluster_nctarank());
  const int rank = static_cast<int>(ClusterRank());
  const int token0 = blockIdx.y * C::kTokens;
  const int row0 = blockIdx.z * C::kRows;
  const int first = rank * p.k_blocks_each + min(rank, p.k_blocks_rest);
  const int count = p.k_blocks_each + (rank < p.k_blocks_rest ? 1 : 0);
  constexpr int kTmaWarp = C::kConsumers / 32, kScaleWarp = kTmaWarp + 1;
  constexpr uint32_t kStageTx = C::kStageBytes;

  // Under programmatic dependent launch the weights come before the wait for the kernel before.
  // Otherwise what all CTAs share comes first: DRAM serves the weights of all stages in any order,
  // and whatever is asked for later queues behind them (3 us measured).
  const bool early_weights = p.early_weights != 0;
  const auto load_activations = [&](int stage, int i) {
    TmaLoad(shared.activations(stage), &p.activations, &shared.full[stage], (first + i) * 128,
            token0);
  };
  const auto load_weights = [&](int stage, int i) {
    TmaLoad(shared.weights(stage), &p.weights, &shared.full[stage], (first + i) * 128, row0);
  };
  if (warp == kTmaWarp) {
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < kSmallMMaxStages; ++i) BarrierInit(&shared.full[i], FullArrivals());
      BarrierInitFence();
#pragma unroll 1
      for (int i = 0; i < min(stages, count); ++i) {
        BarrierArriveExpect(&shared.full[i], kStageTx);
        if (!early_weights) load_activations(i, i);
        load_weights(i, i);
      }
    }
  } else if (warp == 0 && lane == 0) {
#pragma unroll
    for (int i = 0; i < kSmallMMaxStages; ++i)
      BarrierInit(&shared.empty[i], EmptyArrivals(C::kConsumers / 32, 1));
#pragma unroll
    for (int i = 0; i < SmallMLayout::kScaleBuffers; ++i) {
      BarrierInit(&shared.scales_full[i], 32);
      BarrierInit(&shared.scales_empty[i], C::kConsumers / 32);
    }
    BarrierInit(shared.exchange_full, C::kWarpgroups);
    BarrierInitFence();
  }
  SmallMScales<C> scales(p, first, count, token0, row0, lane);
  if (warp == kScaleWarp && !early_weights) scales.Fetch(0);
  __syncthreads();
  // Says that this CTA's barriers are ready for the others' sums; waited for before those are sent.
  if (splits > 1) ClusterArriveRelaxed();
  if (warp == kScaleWarp) {
    GridDependencyWait();
    // Not before the wait: the next kernel loads its weights early, and only this one, not those
    // before it, is known to leave them alone.
    if constexpr (!C::kLateTrigger) GridDependencyLaunch();
    if (early_weights) {
      scales.Fetch(0);
#pragma unroll 1
      for (int i = 0; i < min(stages, count) && lane == 0; ++i) load_activations(i, i);
    }
    __syncwarp();
    scales.Run(shared);
    __syncwarp();
    if (splits > 1) ClusterWait();
    return;
  }

  float sum[C::kRegs];
#pragma unroll
  for (int i = 0; i < C::kRegs; ++i) sum[i] = 0.0f;

  if (warp < kTmaWarp) {
    const int warpgroup = warp / 4;
    StageCursor at;
    using L = SmallMLayout;
#pragma unroll 1
    for (int chunk = 0; chunk * 4 < count; ++chunk) {
      const int buffer = chunk % L::kScaleBuffers;
      BarrierWait(&shared.scales_full[buffer], chunk / L::kScaleBuffers & 1);
      const int left = count - chunk * 4;
      if (left >= 4) {
        SmallMBlocks<C, 4>(sum, shared, at, shared.scale(buffer, 0), stages, warpgroup, lane);
      } else {
#pragma unroll 1
        for (int block = 0; block < left; ++block)
          SmallMBlocks<C, 1>(sum, shared, at, shared.scale(buffer, block), stages, warpgroup, lane);
      }
      if (lane == 0) BarrierArrive(&shared.scales_empty[buffer]);
    }
  } else if (lane == 0) {
    GridDependencyWait();
    StageCursor at{0, 1};
#pragma unroll 1
    for (int i = stages; i < count; ++i) {
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
  if (warp >= kTmaWarp) return;

  // A warpgroup's groups of 8 tokens go round-robin to the CTAs of the cluster for summing.
  const int warpgroup = warp / 4, token_group = warpgroup / C::kRowGroups;
  const int own_token0 = token0 + token_group * C::kOwnTokens;
  const int groups = min(C::kGroups, max(0, (p.m - own_token0 + 7) / 8));
  uint32_t own = (1u << groups) - 1;  // bit j: this CTA sums and stores group j
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
        StoreAsync(MapToRank(to, owner),
                   make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]),
                   MapToRank(full, owner));
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
        const float4 v = *reinterpret_cast<const float4*>(at);
        sum[4 * j] += v.x, sum[4 * j + 1] += v.y, sum[4 * j + 2] += v.z, sum[4 * j + 3] += v.w;
        at += C::kConsumers * 16;
      }
    }
  }
  if constexpr (C::kFloat32) {
    SmallMStoreF32<C>(p, sum, own, own_token0,
                      row0 + warpgroup % C::kRowGroups * 64 + (warp & 3) * 16, lane);
    return;
  }
  // All loads have been consumed once every consumer is here: the ring becomes the output tile.
  NamedSync(1, C::kConsumers);
  uint8_t* const tile = shared.stages + warpgroup * C::kOwnTokens * 128;
  const auto stage_group = [&](int j) {
    SmallMStage(SharedAddress(tile),
                make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]), p.alpha, j,
                warp, lane);
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
  SmallMCopyOut(p, tile, groups, rank, splits, own_token0, row0 + warpgroup % C::kRowGroups * 64,
                threadIdx.x % 128);
}

/// `registers` as ptxas reports them; `residencies` as in SmallMKernel.
template <class C>
SmallMKernel MakeSmallM(const char* id, int registers, int residencies) {
  return {id,
          reinterpret_cast<const void*>(&SmallMGemm<C>),
          C::kTokens,
          C::kRowGroups,
          C::kTokenGroups,
          registers,
          residencies,
          C::kFloat32 ? 4 : 2};
}

}  // namespace culet::sm90
