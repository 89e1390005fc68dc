// The grouped kernel: D^T = B A^T, tiles of 128 rows of a group's weights by up to C::kTokens of
// its rows, which CTAs take in a fixed stride until none is left. Weights come by TMA, rows of A by
// copies of 16 bytes, so that an index may gather them. The ring of stages runs on from tile to
// tile: while one is stored, the next one's operands come.
//
// Warps: the first warpgroup produces (warp 0 weights, the others rows of A and scales), two
// consume, 64 rows of weights each. Clusters, where there are any, split K: ranks send their sums
// to rank 0, which adds them in rank order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/sm90/grouped/swap_loads.cuh"
#include "kernels/sm90/grouped/swap_tiles.cuh"
#include "kernels/sm90/product/output.cuh"
#include "sm90/epilogue.cuh"
#include "sm90/fragment.cuh"
#include "sm90/pipeline.cuh"
#include "sm90/scheduler.h"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::sm90 {

/// Adds kBlocks k-blocks, times their scales, to the sums. Of wide tiles each half is a product of
/// its own, so that one is scaled while the tensor core makes the next. Nothing is in flight at the
/// end: ptxas serialises products that cross a loop's back edge and are read in the loop.
template <class C, int kWidth, int kBlocks>
__device__ __forceinline__ void AddScaledBlocks(const GroupedShared<C>& shared,
                                                RingCursor<C::kStages>& at,
                                                float (&sum)[kWidth / 2], bool gathers,
                                                int warpgroup, int lane) {
  constexpr int kParts = kWidth > 64 ? 2 : 1, kPart = kWidth / kParts;
  constexpr int kProducts = kBlocks * kParts;
  using Product = Wgmma<typename C::Format, kPart>;
  float product[2][kPart / 2];
  int stage[kBlocks];
  const auto issue = [&](int i) {
    if (i % kParts == 0) {
      stage[i / kParts] = at.stage;
      shared.ring->WaitFull(at);
      if (gathers) FenceAsyncShared();  // copies, not TMA, wrote the rows
      at.Advance();
    }
    const uint64_t weights = shared.Weights(stage[i / kParts], warpgroup);
    const uint64_t rows =
        shared.Rows(stage[i / kParts]) + WgmmaDescriptorStep(i % kParts * kPart * kBlockBytes);
    WgmmaFence();
    Product::template Ss<false>(product[i % 2], weights, rows);
#pragma unroll
    for (int slice = 1; slice < 4; ++slice) {
      const uint64_t step = WgmmaDescriptorStep(slice * kWgmmaKBytes);
      Product::template Ss<true>(product[i % 2], weights + step, rows + step);
    }
    WgmmaCommit();
  };
  issue(0);
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    if (i + 1 < kProducts) {
      issue(i + 1);
      WgmmaWait<1>();
    } else {
      WgmmaWait<0>();
    }
    float(&done)[kPart / 2] = product[i % 2];
    FenceRegisters(done);
    const float* const scales = shared.scales + stage[i / kParts] * C::kScaleFloats;
    const float first = scales[C::kTokens], second = C::kGated ? scales[C::kTokens + 1] : first;
    const float2* const of_tokens =
        reinterpret_cast<const float2*>(scales + i % kParts * kPart) + (lane & 3);
    float* const to = sum + i % kParts * (kPart / 2);
#pragma unroll
    for (int j = 0; j < kPart / 8; ++j) {
      const float2 x = of_tokens[4 * j];
      to[4 * j] += x.x * first * done[4 * j];
      to[4 * j + 1] += x.y * first * done[4 * j + 1];
      to[4 * j + 2] += x.x * second * done[4 * j + 2];
      to[4 * j + 3] += x.y * second * done[4 * j + 3];
    }
    if (i % kParts == kParts - 1) shared.ring->template Release<1>(stage[i / kParts], lane);
  }
}

/// Adds all k-blocks to the sums where the producers have multiplied the scales: one product at a
/// time, beside the other warpgroup's. What a k-block needs besides is prepared under its product.
template <class C, int kWidth>
__device__ __forceinline__ void SumFactored(const GroupedShared<C>& shared,
                                            RingCursor<C::kStages>& at, bool& ready,
                                            float (&sum)[C::kBlocks][kWidth / 2], bool gathers,
                                            int kb_begin, int kb_end, int warpgroup, int lane) {
  using Product = Wgmma<typename C::Format, kWidth>;
  // Factors that are read under a product, as far as registers hold them.
  constexpr int kEights = kWidth / 8, kAhead = C::kBlocks > 1 ? 0 : 4;
  float product[kWidth / 2];
#pragma unroll
  for (auto& of_block : sum)
#pragma unroll
    for (float& x : of_block) x = 0.0f;
#pragma unroll 1
  for (int kb = kb_begin; kb < kb_end; ++kb) {
    if (!ready) shared.ring->WaitFull(at);
    if (gathers) FenceAsyncShared();
    const int stage = at.stage;
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
      const int block = warpgroup * C::kBlocks + m;
      const uint64_t weights = shared.Weights(stage, block), rows = shared.Rows(stage);
      FenceRegisters(product);
      WgmmaFence();
      Product::template Ss<false>(product, weights, rows);
#pragma unroll
      for (int slice = 1; slice < 4; ++slice) {
        const uint64_t step = WgmmaDescriptorStep(slice * kWgmmaKBytes);
        Product::template Ss<true>(product, weights + step, rows + step);
      }
      WgmmaCommit();
      if (m == C::kBlocks - 1) {
        at.Advance();
        ready = shared.ring->TestFull(at);
      }
      const float* const of_stage = shared.scales + stage * C::kScaleFloats;
      using Pair = std::conditional_t<C::kGated, float4, float2>;
      const Pair* const factors =
          reinterpret_cast<const Pair*>(of_stage + (C::kGated ? 0 : block / 2) * C::kTokens) +
          (lane & 3);
      Pair ahead[kAhead > 0 ? kAhead : 1];
#pragma unroll
      for (int j = 0; j < kAhead && j < kEights; ++j) ahead[j] = factors[4 * j];
      WgmmaWait<0>();
      FenceRegisters(product);
      float* const to = sum[m];
#pragma unroll
      for (int j = 0; j < kEights; ++j) {
        const Pair x = j < kAhead ? ahead[j] : factors[4 * j];
        float up[2] = {x.x, x.y};
        if constexpr (C::kGated) up[0] = x.z, up[1] = x.w;
        to[4 * j] = fmaf(x.x, product[4 * j], to[4 * j]);
        to[4 * j + 1] = fmaf(x.y, product[4 * j + 1], to[4 * j + 1]);
        to[4 * j + 2] = fmaf(up[0], product[4 * j + 2], to[4 * j + 2]);
        to[4 * j + 3] = fmaf(up[1], product[4 * j + 3], to[4 * j + 3]);
      }
    }
    shared.ring->template Release<1>(stage, lane);
  }
}

/// The same where the tensor core keeps the sums: two k-blocks are in flight.
template <class C, int kWidth>
__device__ __forceinline__ void SumDirect(const GroupedShared<C>& shared,
                                          RingCursor<C::kStages>& at, bool& ready,
                                          float (&sum)[C::kBlocks][kWidth / 2], bool gathers,
                                          int kb_begin, int kb_end, int warpgroup, int lane) {
  using Product = Wgmma<typename C::Format, kWidth>;
#pragma unroll
  for (auto& of_block : sum) FenceRegisters(of_block);
  const auto issue = [&]<bool kFirst>() {
    if (!ready) shared.ring->WaitFull(at);
    if (gathers) FenceAsyncShared();  // copies, not TMA, wrote the rows
    const uint64_t rows = shared.Rows(at.stage);
    WgmmaFence();
#pragma unroll
    for (int slice = 0; slice < 4; ++slice) {
      const uint64_t step = WgmmaDescriptorStep(slice * kWgmmaKBytes);
#pragma unroll
      for (int m = 0; m < C::kBlocks; ++m) {
        const uint64_t weights = shared.Weights(at.stage, warpgroup * C::kBlocks + m);
        if (kFirst && slice == 0)
          Product::template Ss<false>(sum[m], weights, rows);
        else
          Product::template Ss<true>(sum[m], weights + step, rows + step);
      }
    }
    WgmmaCommit();
    const int stage = at.stage;
    at.Advance();
    ready = shared.ring->TestFull(at);
    return stage;
  };
  int before = issue.template operator()<true>();
#pragma unroll 1
  for (int kb = kb_begin + 1; kb < kb_end; ++kb) {
    const int stage = issue.template operator()<false>();
    WgmmaWait<1>();
    shared.ring->template Release<1>(before, lane);
    before = stage;
  }
  WgmmaWait<0>();
#pragma unroll
  for (auto& of_block : sum) FenceRegisters(of_block);
  shared.ring->template Release<1>(before, lane);
}

/// One consumer warpgroup's sums of a tile: rows of weights by tokens, as wgmma leaves them.
/// `ready`: whether the next stage's data are known to have arrived.
template <class C, int kWidth>
__device__ __forceinline__ void SumTile(const GroupedShared<C>& shared, RingCursor<C::kStages>& at,
                                        bool& ready, float (&sum)[C::kBlocks][kWidth / 2],
                                        bool gathers, int kb_begin, int kb_end, int warpgroup,
                                        int lane) {
  if constexpr (C::kFactors) {
    SumFactored<C, kWidth>(shared, at, ready, sum, gathers, kb_begin, kb_end, warpgroup, lane);
  } else if constexpr (!C::kScaled) {
    if (kb_begin < kb_end) {
      SumDirect<C, kWidth>(shared, at, ready, sum, gathers, kb_begin, kb_end, warpgroup, lane);
      return;
    }
#pragma unroll
    for (auto& of_block : sum)
#pragma unroll
      for (float& x : of_block) x = 0.0f;
  } else {
#pragma unroll
    for (float& x : sum[0]) x = 0.0f;
    constexpr int kBlocks = C::kResident == 1 ? 4 : 1;
    int kb = kb_begin;
#pragma unroll 1
    for (; kb + kBlocks <= kb_end; kb += kBlocks)
      AddScaledBlocks<C, kWidth, kBlocks>(shared, at, sum[0], gathers, warpgroup, lane);
#pragma unroll 1
    for (; kb < kb_end; ++kb)
      AddScaledBlocks<C, kWidth, 1>(shared, at, sum[0], gathers, warpgroup, lane);
    ready = false;
  }
}

/// One consumer warpgroup applies factors, bias and gate to the sums of 64 rows of weights, the
/// tile's `block`th, and stores them.
template <class C, int kWidth>
__device__ __forceinline__ void StoreTile(const GroupedSwapParams& p,
                                          const GroupedShared<C>& shared, const GroupedTile& tile,
                                          float (&sum)[kWidth / 2], int block, int warpgroup,
                                          int warp, int lane) {
  constexpr int kGroups = kWidth / 8;
  constexpr int kColumns = C::kGated ? 32 : 64;  // of D
  const int in_row = lane / 4, token = 2 * (lane & 3);
  const int column0 = tile.row + block * kColumns;  // the first of D
  const int column = column0 + warp * (C::kGated ? 8 : 16) + in_row;
  if (p.factors != nullptr) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = j * 8 + token + i;
        if (at >= tile.tokens) continue;
        const int place = tile.place + at;
        const float factor = p.factors[p.factor_index[place]];
        sum[4 * j + i] *= factor, sum[4 * j + 2 + i] *= factor;
      }
    }
  }
  if (p.bias != nullptr || p.biases != nullptr) {
    const bool listed = p.bias != nullptr;
    const void* const bias = listed ? p.bias[C::kGated ? 2 * tile.group : tile.group]
                                    : p.biases + tile.group * p.bias_group;
    const void* const second = C::kGated && listed ? p.bias[2 * tile.group + 1] : bias;
    const int other = !C::kGated ? column + 8 : listed ? column : column + p.n;
    const float low = column < p.n ? LoadOutput(bias, p.bias_type, column) : 0.0f;
    const float high =
        (C::kGated ? column : other) < p.n ? LoadOutput(second, p.bias_type, other) : 0.0f;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      sum[4 * j] += low, sum[4 * j + 1] += low;
      sum[4 * j + 2] += high, sum[4 * j + 3] += high;
    }
  }
  if constexpr (C::kGated) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) sum[4 * j + i] = GatedOf(p, sum[4 * j + i], sum[4 * j + 2 + i]);
    }
  }
  constexpr int kEach = C::kGated ? 2 : 4;  // values of a lane and eight tokens
  if (p.d_type == OutputType::kF32) {
    float* const d = static_cast<float*>(p.d) + int64_t{tile.place} * p.ldd;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int at = j * 8 + token + i % 2, to = column + i / 2 * 8;
        if (at < tile.tokens && to < p.n) d[int64_t{at} * p.ldd + to] = sum[4 * j + i];
      }
    }
    return;
  }
  // By way of shared memory, in pieces of 64 tokens: a token's columns side by side.
  constexpr int kPiece = kWidth < 64 ? kGroups : 8;
  constexpr int kChunks = kColumns / 8;  // of 16 bytes, of a token
  uint8_t* const store = shared.store + warpgroup * C::kStoreBytes;
  const uint32_t to = SharedAddress(store);
  const int barrier = 1 + warpgroup, thread = warp * 32 + lane;
  uint16_t* const d = static_cast<uint16_t*>(p.d) + int64_t{tile.place} * p.ldd;
  const bool wide = ((reinterpret_cast<uint64_t>(d) | (p.ldd * 2)) & 15) == 0;
#pragma unroll
  for (int first = 0; first < kGroups; first += kPiece) {
    if (first * 8 >= tile.tokens) break;
    NamedSync(barrier, 128);
    if constexpr (C::kGated) {
#pragma unroll
      for (int j = 0; j < kPiece; j += 2) {
        if (first + j >= kGroups) break;
        const int in_tile = (j + (lane >> 3 & 1)) * 8 + (lane & 7);
        // Of one: its neighbour's place.
        const int g = first + j, h = j + 1 < kPiece && g + 1 < kGroups ? g + 1 : g;
        StoreMatrix2Transposed(to + TmaOffset128(in_tile, warp * 16),
                               PackOutput(p.d_type, sum[4 * g], sum[4 * g + 1]),
                               PackOutput(p.d_type, sum[4 * h], sum[4 * h + 1]));
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPiece; ++j) {
        if (first + j >= kGroups) break;
        const float* const v = sum + 4 * (first + j);
        StoreMatrix2Transposed(
            to + TmaOffset128(j * 8 + (lane & 7), (warp * 2 + (lane >> 3 & 1)) * 16),
            PackOutput(p.d_type, v[0], v[1]), PackOutput(p.d_type, v[2], v[3]));
      }
    }
    NamedSync(barrier, 128);
    const int chunk = thread % kChunks, at_column = column0 + chunk * 8;
    constexpr int kRounds = (kPiece * 8 + 128 / kChunks - 1) / (128 / kChunks);
    uint4 data[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int row = min(thread / kChunks + i * (128 / kChunks), kPiece * 8 - 1);
      data[i] = *reinterpret_cast<const uint4*>(store + TmaOffset128(row, chunk * 16));
    }
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int in_piece = thread / kChunks + i * (128 / kChunks), at = first * 8 + in_piece;
      if (in_piece >= kPiece * 8 || at >= tile.tokens) break;
      uint16_t* const row = d + int64_t{at} * p.ldd + at_column;
      if (wide && at_column + 8 <= p.n) {
        *reinterpret_cast<uint4*>(row) = data[i];
      } else {
        const uint16_t* const narrow = reinterpret_cast<const uint16_t*>(&data[i]);
#pragma unroll
        for (int c = 0; c < 8; ++c)
          if (at_column + c < p.n) row[c] = narrow[c];
      }
    }
  }
}

/// The consumers' side of a cluster that splits K.
template <class C, int kWidth>
__device__ __forceinline__ bool SumRanks(const GroupedShared<C>& shared, float (&sum)[kWidth / 2],
                                         int rank, int splits, uint32_t parity, bool is_first,
                                         int warp, int lane) {
  constexpr int kGroups = kWidth / 8;
  const int thread = warp * 32 + lane;
  if (rank != 0) {
    if (!is_first) BarrierWait(shared.sums_free, parity ^ 1);
    const uint32_t barrier = MapToRank(SharedAddress(shared.sums_full), 0);
    const uint32_t to =
        MapToRank(SharedAddress(shared.exchange + (rank - 1) * kGroups * 256 + thread), 0);
#pragma unroll
    for (int j = 0; j < kGroups; ++j)
      StoreAsync(to + j * 256 * 16,
                 make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]), barrier);
    return false;
  }
  if (thread == 0) BarrierArriveExpect(shared.sums_full, (splits - 1) * kGroups * 256 * 16);
  BarrierWaitCluster(shared.sums_full, parity);
#pragma unroll 1
  for (int r = 0; r < splits - 1; ++r) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const float4 v = shared.exchange[(r * kGroups + j) * 256 + thread];
      sum[4 * j] += v.x, sum[4 * j + 1] += v.y, sum[4 * j + 2] += v.z, sum[4 * j + 3] += v.w;
    }
  }
  __syncwarp();
  if (lane < splits - 1) BarrierArriveRemote(shared.sums_free, lane + 1);
  return true;
}

template <class C, int kWidth>
__device__ __forceinline__ void ConsumeTile(const GroupedSwapParams& p,
                                            const GroupedShared<C>& shared,
                                            RingCursor<C::kStages>& at, bool& ready,
                                            const GroupedTile& tile, int kb_begin, int kb_end,
                                            int rank, int splits, int number, int warp, int lane) {
  const int warpgroup = warp / 4;
  float sum[C::kBlocks][kWidth / 2];
  SumTile<C, kWidth>(shared, at, ready, sum, p.index != nullptr, kb_begin, kb_end, warpgroup, lane);
  if constexpr (kWidth <= C::kSplitTokens) {
    if (splits > 1 &&
        !SumRanks<C, kWidth>(shared, sum[0], rank, splits, number & 1, number == 0, warp, lane))
      return;
  }
#pragma unroll
  for (int m = 0; m < C::kBlocks; ++m)
    StoreTile<C, kWidth>(p, shared, tile, sum[m], warpgroup * C::kBlocks + m, warpgroup, warp % 4,
                         lane);
}

/// Calls `use<width>` with the smallest width of a wgmma, in steps of 32, above 64 of
/// C::kWidthStep, that holds the tokens.
template <class C, int kMost, class Use>
__device__ __forceinline__ void ForWidth(int tokens, Use use) {
  if constexpr (kMost == 16 || (kMost == 32 && C::kBlocks > 1)) {
    use.template operator()<kMost>();
  } else {
    constexpr int kNext = kMost == 32 ? 16 : kMost - (kMost > 64 ? C::kWidthStep : 32);
    if (tokens <= kNext)
      ForWidth<C, kNext>(tokens, use);
    else
      use.template operator()<kMost>();
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kResident)
    GroupedSwap(const __grid_constant__ GroupedSwapParams p) {
  CULET_DYNAMIC_SHARED(shared_base);
  const GroupedShared<C> shared(shared_base);
  const int warp = WarpUniform(threadIdx.x / 32), lane = threadIdx.x % 32;
  const int splits = C::kSplitTokens > 0 ? static_cast<int>(ClusterSize()) : 1;
  const int rank = splits > 1 ? static_cast<int>(ClusterRank()) : 0;
  // Whether warps copy to the stages beside TMA.
  const bool copies = C::kScaled || p.index != nullptr;
  if (warp == 0 && ElectOne()) {
    const bool by_threads = C::kFactors ? p.index != nullptr : copies;
    shared.ring->InitFull(
        FullArrivals((by_threads ? 32 * C::kTokenWarps : 0) + (C::kFactors ? C::kTokenWarps : 0)));
    shared.ring->InitEmpty(EmptyArrivals(C::kConsumerWarps, 1));
    BarrierInit(shared.sums_full, 1);
    BarrierInit(shared.sums_free, C::kConsumerWarps);
    BarrierInitFence();
    PrefetchTensorMap(&p.b);
  }
  if (p.early_weights == 0) {
    GridDependencyWait();
    GridDependencyLaunch();
  }
  CountTiles<C>(p, shared.first_tile, shared.sources, splits);
  if (splits > 1) {
    ClusterArriveRelaxed();
    ClusterWait();
  }
  int kb_begin = 0, kb_end = p.k_blocks;
  if (splits > 1) SplitRange(p.k_blocks, splits, rank, kb_begin, kb_end);
  if (warp < 4) {
    if constexpr (C::kReallocates) RegistersDown<C::kProducerRegisters>();
    if (warp == 0) {
      if (ElectOne()) LoadWeights<C>(p, shared, splits, kb_begin, kb_end);
      __syncwarp();
    } else {
      if (p.early_weights != 0) {
        GridDependencyWait();
        GridDependencyLaunch();
      }
      if (copies) LoadRows<C>(p, shared, splits, kb_begin, kb_end, threadIdx.x - 32);
    }
  } else {
    if constexpr (C::kReallocates) RegistersUp<C::kConsumerRegisters>();
    RingCursor<C::kStages> at;
    bool ready = false;
    const auto consume = [&](const GroupedTile& tile, int number) {
      const auto use = [&]<int kWidth>() {
        ConsumeTile<C, kWidth>(p, shared, at, ready, tile, kb_begin, kb_end, rank, splits, number,
                               warp - 4, lane);
      };
      if constexpr (C::kTokens == 32) {
        if (tile.tokens <= 8)
          use.template operator()<8>();
        else if (tile.tokens <= 16)
          use.template operator()<16>();
        else
          use.template operator()<32>();
      } else {
        ForWidth<C, C::kTokens>(tile.tokens, use);
      }
    };
    GroupedWalk<C> walk(p, shared.first_tile, splits);
    if constexpr (C::kHandsOn) {
      int left = walk.left();
      if (C::kLag > 0 && warp >= 8 && left > 1) {
        shared.ring->WaitFull(at);
        Lag(C::kLag);
      }
#pragma unroll 1
      for (; left > 0; --left) {
        if (!ready) shared.ring->WaitFull(at);
        ready = true;
        const GroupedTile tile = shared.places[at.stage];  // the stage is filled again meanwhile
        consume(tile, 0);
      }
    } else {
      for (int number = 0; walk.there(); walk.Advance()) consume(walk.Place(), number++);
    }
  }
  if (splits > 1) {
    __syncwarp();
    ClusterArriveRelaxed();
    ClusterWait();
  }
}

template <class Policy, int kRows, int kTokens, bool kGated, bool kMultiplied = false>
GroupedSwapKernel MakeGroupedSwap(const char* id, int registers) {
  using C = GroupedConfig<Policy, kRows, kTokens, kGated, kMultiplied>;
  return {.id = id,
          .function = reinterpret_cast<const void*>(&GroupedSwap<C>),
          .format = &Policy::kInfo,
          .gated = kGated,
          .multiplied = C::kFactors,
          .rows = kRows,
          .tokens = kTokens,
          .width_step = C::kWidthStep,
          .box_rows = C::kBoxRows,
          .split_tokens = C::kSplitTokens,
          .resident = C::kResident,
          .stages = C::kStages,
          .smem_bytes = C::kSmemBytes,
          .threads = C::kThreads,
          .registers = registers};
}

}  // namespace culet::sm90
